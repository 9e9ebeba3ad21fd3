// Messages before those that are observed.
import { useMemo, useRef, useState } from "react";
import { get, threadPath } from "../api";
import { useAction } from "../hooks";
import type { Message, MessageList, ThreadRecord } from "../types";

const page = 100;
/** More are given up, the oldest first, so that a page that stays open does not grow for ever. */
const mostOlder = 2000;

export interface Older {
  messages: Message[];
  more: boolean;
  loading: boolean;
  error: string;
  load: () => void;
}

interface Kept {
  messages: Message[];
  /** Whether there are earlier ones; null when that was not asked. */
  more: boolean | null;
  /** What was observed when this was computed. */
  observed: Message[];
  count: number;
  /** Grows when the messages are given up. What was asked before is outdated then. */
  generation: number;
}

/** Returns what is kept after the observed messages have changed. */
function follow(was: Kept, observed: Message[], count: number): Kept {
  const now = { ...was, observed, count };
  const givenUp: Kept = { ...now, messages: [], more: null, generation: was.generation + 1 };
  if (count < was.count) return givenUp; // some were removed, perhaps of these
  if (was.observed.length === 0) return now;
  const first = was.observed.findIndex((m) => m.id === observed[0]?.id);
  if (first < 0) return givenUp; // there may be others in between
  if (first === 0) return now;
  const all = [...was.messages, ...was.observed.slice(0, first)];
  return all.length > mostOlder ? { ...now, messages: all.slice(-mostOlder), more: true } : { ...now, messages: all };
}

/**
 * Returns the messages before those that are observed, which are the newest ones. The server observes fewer as more come: those that it leaves out stay
 * here, so that nothing vanishes under the eyes of a reader.
 */
export function useOlder(namespace: string, record: ThreadRecord, observed: Message[]): Older {
  const [kept, setKept] = useState<Kept>({ messages: [], more: null, observed, count: record.messageCount, generation: 0 });
  const action = useAction();
  let now = kept;
  if (kept.observed !== observed || kept.count !== record.messageCount) {
    // During the same drawing, so that messages do not leave the page in between.
    now = follow(kept, observed, record.messageCount);
    setKept(now);
  }
  const newest = useRef(now);
  newest.current = now;
  const older = useMemo(() => {
    const known = new Set(observed.map((m) => m.id));
    return now.messages.filter((m) => !known.has(m.id));
  }, [now.messages, observed]);
  const load = () =>
    void action.run(async () => {
      const { generation } = newest.current;
      // Newest first: messages that come meanwhile make this page overlap with what is there, and leave no gap.
      const path = `${threadPath(namespace, record.threadId, "messages")}?order=desc&limit=${page}&offset=${observed.length + older.length}`;
      const list = await get<MessageList>(path);
      setKept((k) => {
        if (k.generation !== generation) return k;
        const seen = new Set([...k.observed, ...k.messages].map((m) => m.id));
        return { ...k, messages: [...list.messages.filter((m) => !seen.has(m.id)).reverse(), ...k.messages], more: list.hasMore };
      });
    });
  const more = now.more ?? (observed.length > 0 && record.messageCount > observed.length + older.length);
  return { messages: older, more, loading: action.busy, error: action.error, load };
}
