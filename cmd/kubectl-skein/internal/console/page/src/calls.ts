// The calls that wait for approval, as a list in which nothing moves: a call that was decided stays in its place, and new calls are added at the end. A
// list that closed its gaps could move the button of another call under the pointer of a person who is about to click.
import { useCallback, useEffect, useReducer, useRef } from "react";
import { get, messageOf, RequestError, threadPath } from "./api";
import type { Approval, ApprovalList, Decided } from "./types";

export interface ThreadName {
  namespace: string;
  name: string;
}

export interface Item {
  key: string;
  thread: ThreadName;
  call: Approval;
  /** Calls of the same group follow each other, and belong to the same thread. */
  group: number;
  /** What became of the call; "" while it waits. */
  became: string;
}

/** What the newest read of a thread said, apart from its calls. */
export interface Read {
  error: string;
  more: boolean;
}

export interface Calls {
  items: readonly Item[];
  reads: ReadonlyMap<string, Read>;
  groups: number;
}

type Change =
  | { kind: "read"; thread: ThreadName; calls: Approval[]; more: boolean }
  | { kind: "failed"; thread: ThreadName; error: string }
  | { kind: "gone"; thread: ThreadName }
  | { kind: "decided"; key: string; became: string }
  | { kind: "sweep" };

const none: Calls = { items: [], reads: new Map(), groups: 0 };

export const noLongerWaits = "no longer waits";

export function nameOf(thread: ThreadName): string {
  return `${thread.namespace}/${thread.name}`;
}

function keyOfCall(thread: ThreadName, call: Approval): string {
  // Ids of calls may come again in later runs.
  return [nameOf(thread), call.toolCallId, call.requestedAt ?? 0].join(" ");
}

function sayDecision(d: Decided): string {
  if (d.expired) return "refused, because its time ran out";
  return `${d.approved ? "approved" : "refused"}${d.by ? ` by ${d.by}` : ""}`;
}

function reduce(old: Calls, change: Change): Calls {
  switch (change.kind) {
    case "decided":
      return { ...old, items: old.items.map((item) => (item.key === change.key ? { ...item, became: change.became } : item)) };
    case "sweep":
      return { ...old, items: old.items.filter((item) => item.became === "") };
    case "failed":
      return { ...old, reads: new Map(old.reads).set(nameOf(change.thread), { error: change.error, more: old.reads.get(nameOf(change.thread))?.more ?? false }) };
    case "gone":
      return take(old, change.thread, [], false);
    case "read":
      return take(old, change.thread, change.calls, change.more);
  }
}

/** Takes in the calls that a thread has now. */
function take(old: Calls, thread: ThreadName, calls: Approval[], more: boolean): Calls {
  const name = nameOf(thread);
  const now = new Map(calls.map((call) => [keyOfCall(thread, call), call]));
  const known = new Set<string>();
  let groups = old.groups;
  const items = old.items.map((item): Item => {
    if (nameOf(item.thread) !== name) return item;
    known.add(item.key);
    const call = now.get(item.key);
    if (item.became || (call && !call.decision)) return item;
    return { ...item, became: call?.decision ? sayDecision(call.decision) : noLongerWaits };
  });
  for (const [key, call] of now) {
    if (call.decision || known.has(key)) continue;
    const last = items.at(-1);
    const group = last && nameOf(last.thread) === name ? last.group : groups++;
    items.push({ key, thread, call, group, became: "" });
  }
  return { items, reads: new Map(old.reads).set(name, { error: "", more }), groups };
}

export interface CallsOfThreads extends Calls {
  onRead: (change: Change) => void;
  decided: (key: string, became: string) => void;
  sweep: () => void;
}

export function useCalls(): CallsOfThreads {
  const [calls, change] = useReducer(reduce, none);
  const decided = useCallback((key: string, became: string) => change({ kind: "decided", key, became }), []);
  const sweep = useCallback(() => change({ kind: "sweep" }), []);
  return { ...calls, onRead: change, decided, sweep };
}

/** A thread is read at most so often, in milliseconds. */
const pause = 1000;

interface ReaderProps {
  namespace: string;
  name: string;
  /** When it changes, the calls are read again. */
  version: unknown;
  onRead: (change: Change) => void;
}

/** Reads the calls of a thread as long as it is drawn. It shows nothing itself. */
export function Reader({ namespace, name, version, onRead }: ReaderProps) {
  const ask = useRef(() => {});
  useEffect(() => {
    const thread = { namespace, name };
    const stop = new AbortController();
    let timer: number | undefined;
    let reading = false;
    let again = false;
    let readAt = 0;
    const read = async () => {
      timer = undefined;
      reading = true;
      readAt = Date.now();
      try {
        const list = await get<ApprovalList>(`${threadPath(namespace, name, "approvals")}?limit=100`, stop.signal);
        if (!stop.signal.aborted) onRead({ kind: "read", thread, calls: list.approvals, more: list.hasMore });
      } catch (err) {
        if (stop.signal.aborted) return;
        if (err instanceof RequestError && err.code === 404) onRead({ kind: "gone", thread });
        else onRead({ kind: "failed", thread, error: messageOf(err) });
      }
      reading = false;
      if (again && !stop.signal.aborted) ask.current();
    };
    ask.current = () => {
      again = reading;
      if (!reading) timer ??= window.setTimeout(() => void read(), Math.max(0, readAt + pause - Date.now()));
    };
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [namespace, name, onRead]);
  useEffect(() => ask.current(), [namespace, name, version, onRead]);
  return null;
}
