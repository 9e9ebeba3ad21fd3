// State that several views share.
import { useCallback, useEffect, useRef, useState } from "react";
import { messageOf } from "./api";

/** The present time in milliseconds, which moves on every `every` milliseconds, or stands still when that is 0. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (every === 0) return;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export interface Loaded<T> {
  value?: T;
  error?: string;
  loading: boolean;
  /** Reads it again. The old value stays until the new one is there. */
  again: () => void;
}

/**
 * Reads something, and reads it again when `inputs` change. Only the newest answer counts. An answer for other inputs is not shown.
 */
export function useLoaded<T>(read: (signal: AbortSignal) => Promise<T>, inputs: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: string; loading: boolean; of?: string }>({ loading: true });
  const [round, setRound] = useState(0);
  const key = JSON.stringify(inputs);
  useEffect(() => {
    const stop = new AbortController();
    setState((old) => (old.of === key ? { ...old, loading: true } : { loading: true, of: key }));
    read(stop.signal).then(
      (value) => !stop.signal.aborted && setState({ value, loading: false, of: key }),
      (err) => !stop.signal.aborted && setState((old) => ({ ...old, error: messageOf(err), loading: false, of: key })),
    );
    return () => stop.abort();
    // read is a new function each time; key says what it depends on.
  }, [key, round]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  return state.of === key ? { ...state, again } : { loading: true, again };
}

/**
 * Reads something that changes often: once at first, and again after `version` has changed, one read at a time and one in `pause` milliseconds.
 * A read that is under way goes on, however often the version changes. The old value stays until the new one is there.
 */
export function useRefreshed<T>(read: (signal: AbortSignal) => Promise<T>, inputs: unknown[], version: string | number, pause = 1000): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: string; loading: boolean; of?: string }>({ loading: true });
  const [round, setRound] = useState(0);
  const newest = useRef({ read, version });
  newest.current = { read, version };
  const wake = useRef(() => {});
  const key = JSON.stringify(inputs);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let reading = false;
    let of: string | number = "";
    const start = () => {
      reading = true;
      of = newest.current.version;
      setState((old) => (old.of === key ? { ...old, loading: true } : { loading: true, of: key }));
      newest.current
        .read(stop.signal)
        .then(
          (value) => !stop.signal.aborted && setState({ value, loading: false, of: key }),
          (err) => !stop.signal.aborted && setState((old) => ({ ...old, error: messageOf(err), loading: false, of: key })),
        )
        .finally(() => {
          reading = false;
          if (stop.signal.aborted) return;
          timer = window.setTimeout(() => {
            timer = 0;
            wake.current();
          }, pause);
        });
    };
    wake.current = () => {
      if (!reading && !timer && newest.current.version !== of) start();
    };
    start();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, round, pause]);
  useEffect(() => wake.current(), [version]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  return state.of === key ? { ...state, again } : { loading: true, again };
}

export interface Action {
  /** Whether it is under way. */
  busy: boolean;
  error: string;
  clear: () => void;
  /** Does something, unless the same action is under way. It resolves to true when that succeeded. */
  run: (act: () => Promise<unknown>) => Promise<boolean>;
}

/** Does something that the viewer asked for, once at a time, and keeps what went wrong. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const running = useRef(false);
  const run = useCallback(async (act: () => Promise<unknown>) => {
    if (running.current) return false;
    running.current = true;
    setBusy(true);
    setError("");
    try {
      await act();
      return true;
    } catch (err) {
      setError(messageOf(err));
      return false;
    } finally {
      running.current = false;
      setBusy(false);
    }
  }, []);
  return { busy, error, clear: useCallback(() => setError(""), []), run };
}
