// The events of one run of a thread. The log has no index of runs, so the beginning of a run is searched for by time, once; then one stream follows
// the run.
import { useEffect, useRef, useState } from "react";
import { eventsProtocol, follow, isEndOfLog, messageOf, readEvents, threadPath } from "../api";
import type { Run, ThreadEvent } from "../types";

export interface RunEvents {
  /** Those that are known, oldest first, without the pieces of answers. */
  events: readonly ThreadEvent[];
  /** Whether a part of the run is known at all: its first event, or that the log has none. */
  known: boolean;
  /** Whether all events of a run that has ended are known. */
  complete: boolean;
  /** Whether there are more than are kept. */
  cut: boolean;
  error: string;
  /** Reads them again after an error. */
  again: () => void;
}

/** More events of one run are not kept. */
export const mostEvents = 20_000;

/** A search ends when the beginning of a run is known to so many events. */
const near = 64;
/** The clock of the run's record and that of its events may differ by the time that a transaction takes. */
const margin = 1_000_000;

/** After which event a run begins, by its key. It never changes. */
const starts = new Map<string, number>();
const mostStarts = 1000;

/**
 * Returns after which event a run begins, or one that is at most `near` earlier. It takes a few reads of one event, however long the log is. Most runs that
 * people look at are new, so the steps back from the newest event grow until one is before the run.
 */
async function startOf(namespace: string, name: string, run: Run, newest: number, signal: AbortSignal): Promise<number> {
  const inRun = async (after: number): Promise<boolean> => {
    let at = Infinity;
    await readEvents(namespace, name, after, (event: ThreadEvent) => ((at = event.createdAt), false), signal);
    return at >= run.startedAt - margin;
  };
  let from = 0;
  let to = newest;
  for (let step = near; to > step; step *= 4) {
    const earlier = to - step;
    if (!(await inRun(earlier))) {
      from = earlier;
      break;
    }
    to = earlier;
  }
  while (to - from > near) {
    const middle = Math.floor((from + to) / 2);
    if (await inRun(middle)) to = middle;
    else from = middle;
  }
  return from;
}

const nothing: Omit<RunEvents, "again"> = { events: [], known: false, complete: false, cut: false, error: "" };

/** Reads the events of a run, and follows them while it is under way. `newest` is the newest event of the thread. */
export function useRunEvents(namespace: string, name: string, run: Run | undefined, newest: number): RunEvents {
  const [round, setRound] = useState(0);
  const again = useRef(() => setRound((n) => n + 1)).current;
  const [state, setState] = useState<Omit<RunEvents, "again">>(nothing);
  const record = useRef({ run, newest });
  record.current = { run, newest };
  const key = run && `${namespace}/${name}/${run.id}`;
  useEffect(() => {
    const begun = record.current.run;
    if (!key || !begun) return;
    const stop = new AbortController();
    const events: ThreadEvent[] = [];
    let last = 0;
    let known = false;
    let complete = false;
    let cut = false;
    let error = "";
    let frame = 0;
    let stopFollowing: (() => void) | undefined;
    // Events that come together are drawn once.
    const changed = () =>
      (frame ||= requestAnimationFrame(() => {
        frame = 0;
        setState({ events: [...events], known, complete, cut, error });
      }));
    const end = () => {
      stopFollowing?.();
      known = true;
      changed();
    };
    const take = (event: ThreadEvent) => {
      if (event.seq <= last) return;
      last = event.seq;
      const endedAt = record.current.run?.endedAt;
      if (event.runId === begun.id) {
        if (!starts.has(key)) remember(key, event.seq - 1);
        if (event.type === "message.delta") return;
        if (events.length === mostEvents) {
          cut = true;
          end();
          return;
        }
        events.push(event);
        known = true;
        complete = event.type === "run.ended";
        if (complete) end();
        changed();
      } else if (endedAt && event.createdAt > endedAt + margin) {
        complete = true;
        end();
      }
    };
    const read = async () => {
      last = starts.get(key) ?? (await startOf(namespace, name, begun, record.current.newest, stop.signal));
      if (stop.signal.aborted) return;
      stopFollowing = follow({
        path: () => `${threadPath(namespace, name, "events")}?after=${last}${record.current.run?.endedAt ? "&follow=false" : ""}`,
        protocol: eventsProtocol,
        onMessage: take,
        onConnected: (now) => {
          const before = error;
          error = now ? "" : "The events of the run cannot be read at present. The page tries again.";
          if (error !== before) changed();
        },
        onEnd: (reason) => {
          complete = isEndOfLog(reason);
          error = complete ? "" : "The thread was deleted.";
          end();
        },
      });
    };
    setState(nothing);
    read().catch((err: unknown) => {
      if (stop.signal.aborted) return;
      error = messageOf(err);
      changed();
    });
    return () => {
      stop.abort();
      stopFollowing?.();
      cancelAnimationFrame(frame);
    };
  }, [key, round]);
  return { ...state, again };
}

function remember(key: string, seq: number): void {
  if (starts.size >= mostStarts) starts.delete(starts.keys().next().value!);
  starts.set(key, seq);
}
