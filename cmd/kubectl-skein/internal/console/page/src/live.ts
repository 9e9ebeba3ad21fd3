// The lists of threads and effects as they are now. One WebSocket keeps both up to date.
import { createContext, useContext, useEffect, useState } from "react";
import { follow } from "./api";
import type { EffectRow, LiveMessage, ThreadRow } from "./types";

/** A list. It is a new object after each change. */
export interface Listed<T> {
  rows: ReadonlyMap<string, T>;
  /** Whether the first list is complete. */
  synced: boolean;
  error: string;
}

export interface Live {
  threads: Listed<ThreadRow>;
  effects: Listed<EffectRow>;
  connected: boolean;
}

function none<T>(): Listed<T> {
  return { rows: new Map(), synced: false, error: "" };
}

export const nothingYet: Live = { threads: none(), effects: none(), connected: false };

export function keyOf(row: { namespace: string; name: string }): string {
  return `${row.namespace}/${row.name}`;
}

interface Kind<T> {
  rows: Map<string, T>;
  /** After a reset, the rows that are not listed again go once the list is complete, so that the page does not flash. */
  stale: Set<string> | null;
  synced: boolean;
  error: string;
}

function apply<T extends { namespace: string; name: string }>(kind: Kind<T>, message: LiveMessage): void {
  if (message.reset) kind.stale = new Set(kind.rows.keys());
  for (const item of (message.items ?? []) as unknown as T[]) {
    kind.rows.set(keyOf(item), item);
    kind.stale?.delete(keyOf(item));
  }
  for (const key of message.deleted ?? []) kind.rows.delete(key);
  if (message.synced) {
    kind.stale?.forEach((key) => kind.rows.delete(key));
    kind.stale = null;
    kind.synced = true;
  }
  if (message.error) kind.error = message.error.message;
  else if (message.synced || message.items) kind.error = "";
}

/** Follows the lists of a namespace, or of all when it is "". */
export function useLiveLists(namespace: string): Live {
  const [live, setLive] = useState(nothingYet);
  useEffect(() => {
    const empty = <T>(): Kind<T> => ({ rows: new Map(), stale: null, synced: false, error: "" });
    const kinds = { threads: empty<ThreadRow>(), effects: empty<EffectRow>() };
    let connected = false;
    let frame = 0;
    const draw = () => {
      frame = 0;
      const listed = <T>(kind: Kind<T>): Listed<T> => ({ rows: new Map(kind.rows), synced: kind.synced, error: kind.error });
      setLive({ threads: listed(kinds.threads), effects: listed(kinds.effects), connected });
    };
    // Messages that come together are drawn once.
    const changed = () => (frame ||= requestAnimationFrame(draw));
    setLive(nothingYet);
    const stop = follow({
      path: () => `/api/live?namespace=${encodeURIComponent(namespace)}`,
      onConnected: (now) => {
        connected = now;
        changed();
      },
      onMessage: (message: LiveMessage) => {
        if (message.kind === "threads") apply(kinds.threads, message);
        else if (message.kind === "effects") apply(kinds.effects, message);
        changed();
      },
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [namespace]);
  return live;
}

export const LiveContext = createContext<Live>(nothingYet);

export function useLive(): Live {
  return useContext(LiveContext);
}
