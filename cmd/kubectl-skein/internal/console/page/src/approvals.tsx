// The tool calls that wait for a person, of all threads that are listed.
import { memo, useCallback, useEffect, useId, useMemo, useRef, useState } from "react";
import { Age } from "./age";
import { messageOf } from "./api";
import { nameOf, noLongerWaits, Reader, useCalls, type CallsOfThreads, type Item, type ThreadName } from "./calls";
import { lacking, useViewer } from "./context";
import { decide as send } from "./decision";
import { fromMicros, plural, pretty, time, visible } from "./format";
import { useAction } from "./hooks";
import { keyOf, useLive } from "./live";
import { useRights } from "./rights";
import { addressOf } from "./route";
import type { ThreadRow } from "./types";
import { Button, Empty, Failure, Loading } from "./ui";

/** So many threads are asked at first. */
const fewThreads = 50;

export function Approvals() {
  const { namespace } = useViewer();
  return <Inbox key={namespace} namespace={namespace} />;
}

function Inbox({ namespace }: { namespace: string }) {
  const { threads } = useLive();
  const calls = useCalls();
  const [limit, setLimit] = useState(fewThreads);
  const waiting = useMemo(
    () =>
      [...threads.rows.values()]
        // For a moment after another namespace was chosen, the list is still that of the one before.
        .filter((row) => row.waits?.reason === "WaitingForApproval" && (namespace === "" || row.namespace === namespace))
        .sort((a, b) => a.active - b.active || (keyOf(a) < keyOf(b) ? -1 : 1)),
    [threads, namespace],
  );
  // The newest row of each thread that has a call here, also once the thread is gone, for its heading.
  const rows = useRef(new Map<string, ThreadRow>());
  for (const row of waiting) rows.current.set(keyOf(row), row);
  const read = useThreadsToRead(waiting, calls, limit);
  const groups = useMemo(() => groupsOf(calls.items), [calls.items]);
  const reads = read.flatMap((thread) => calls.reads.get(nameOf(thread)) ?? []);
  const loading = waiting.slice(0, limit).some((row) => !calls.reads.has(keyOf(row)));
  return (
    <div className="view approvals">
      <div className="toolbar">
        <h1>Approvals</h1>
        <Sweep calls={calls} />
        <span className="total" role="status">
          {plural(waiting.length, "thread")} {waiting.length === 1 ? "waits" : "wait"} for approval
        </span>
      </div>
      <Failure text={threads.error} />
      {read.map((thread) => (
        <Reader key={nameOf(thread)} namespace={thread.namespace} name={thread.name} version={threads.rows.get(nameOf(thread))} onRead={calls.onRead} />
      ))}
      {groups.map(({ thread, items, part }) => (
        <section key={items[0]!.group} aria-label={`Calls of ${nameOf(thread)}${part > 1 ? `, part ${part}` : ""}`}>
          <ThreadHeading thread={thread} row={threads.rows.get(nameOf(thread)) ?? rows.current.get(nameOf(thread))} />
          <List items={items} decided={calls.decided} />
        </section>
      ))}
      {/* What comes and goes is below the calls, so that it does not move them. */}
      {[...new Set(reads.map((r) => r.error))].map((error) => (
        <Failure key={error} text={error} />
      ))}
      {reads.some((r) => r.more) && <More />}
      {loading && <Loading what="the calls" />}
      {waiting.length === 0 && (threads.synced ? <Empty>No call waits for approval.</Empty> : !threads.error && <Loading what="threads" />)}
      {waiting.length > limit && <Button label={`${plural(waiting.length - limit, "more thread")}`} onClick={() => setLimit(limit + fewThreads)} />}
    </div>
  );
}

/** The threads that wait, and those that have a call in the list that is not known to be decided. */
function useThreadsToRead(waiting: ThreadRow[], calls: CallsOfThreads, limit: number): ThreadName[] {
  return useMemo(() => {
    const threads = new Map<string, ThreadName>();
    for (const item of calls.items) if (!item.became) threads.set(nameOf(item.thread), item.thread);
    for (const { namespace, name } of waiting.slice(0, limit)) threads.set(nameOf({ namespace, name }), { namespace, name });
    return [...threads.values()];
  }, [waiting, calls.items, limit]);
}

function groupsOf(items: readonly Item[]): { thread: ThreadName; items: Item[]; part: number }[] {
  const groups = new Map<number, { thread: ThreadName; items: Item[]; part: number }>();
  const parts = new Map<string, number>();
  for (const item of items) {
    const group = groups.get(item.group);
    if (group) {
      group.items.push(item);
      continue;
    }
    const part = (parts.get(nameOf(item.thread)) ?? 0) + 1;
    parts.set(nameOf(item.thread), part);
    groups.set(item.group, { thread: item.thread, items: [item], part });
  }
  return [...groups.values()];
}

function ThreadHeading({ thread, row }: { thread: ThreadName; row: ThreadRow | undefined }) {
  return (
    <h2>
      <a href={addressOf({ view: "thread", ...thread, tab: "conversation" })}>{row?.title || thread.name}</a>{" "}
      <small>
        {nameOf(thread)}
        {row && `, agent ${row.agent}`}
      </small>
    </h2>
  );
}

/** Removes what is decided. Nothing else does, so that no call moves by itself. */
function Sweep({ calls }: { calls: CallsOfThreads }) {
  const decided = calls.items.some((item) => item.became);
  return <Button label="Remove decided calls" unavailable={decided ? "" : "No call of the list is decided."} onClick={calls.sweep} />;
}

function More() {
  return <p className="dim">More calls wait. They are shown once these are decided.</p>;
}

interface ThreadApprovalsProps {
  namespace: string;
  name: string;
  /** Something of the thread that changes when its calls may have changed. */
  version: unknown;
}

/** The calls of one thread that wait, and those that were decided meanwhile. It shows nothing once no call waits. */
export function ThreadApprovals({ namespace, name, version }: ThreadApprovalsProps) {
  const calls = useCalls();
  const waits = calls.items.some((item) => !item.became);
  const { sweep } = calls;
  useEffect(() => {
    if (!waits) sweep(); // a later call does not bring the earlier ones back
  }, [waits, sweep]);
  const read = calls.reads.get(nameOf({ namespace, name }));
  return (
    <div className={waits ? "calls" : undefined}>
      <Reader namespace={namespace} name={name} version={version} onRead={calls.onRead} />
      {waits && <List items={calls.items} decided={calls.decided} />}
      {waits && read?.more && <More />}
      <Failure text={read?.error ?? ""} />
    </div>
  );
}

interface ListProps {
  items: readonly Item[];
  decided: (key: string, became: string) => void;
}

function List({ items, decided }: ListProps) {
  return items.map((item) => <Decide key={item.key} item={item} decided={decided} />);
}

/** Moves the focus from a call that was decided to the next one that waits, or to the heading of the page when there is none. */
function focusNext(from: HTMLElement): void {
  const focused = document.activeElement;
  if (focused && focused !== document.body && !from.contains(focused)) return; // the person is elsewhere
  const waiting = [...document.querySelectorAll<HTMLElement>("[data-test='approval'][data-waits] h3")].filter((el) => !from.contains(el));
  const next = waiting.find((el) => from.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_FOLLOWING) ?? waiting[0];
  const target = next ?? document.querySelector<HTMLElement>("main h1");
  if (!target) return;
  target.tabIndex = -1;
  target.focus();
}

const Decide = memo(function Decide({ item, decided }: { item: Item; decided: ListProps["decided"] }) {
  const { call, thread, became } = item;
  const rights = useRights(thread.namespace);
  const action = useAction();
  const [reason, setReason] = useState("");
  const [edited, setEdited] = useState<string | null>(null);
  const [wrong, setWrong] = useState("");
  const id = useId();
  const ref = useRef<HTMLElement>(null);
  const written = useMemo(() => pretty(call.arguments ?? "{}"), [call.arguments]);
  const name = useMemo(() => visible(call.name), [call.name]);
  const decide = useCallback(
    async (decision: "approve" | "refuse") => {
      const replaced = decision === "approve" && edited !== null && edited !== written ? edited : null;
      try {
        if (replaced !== null) JSON.parse(replaced);
      } catch (err) {
        setWrong(`The arguments are not JSON: ${messageOf(err)}`);
        return;
      }
      setWrong("");
      if (!(await action.run(() => send(thread, call.toolCallId, { decision, reason: reason.trim(), arguments: replaced })))) return;
      if (ref.current) focusNext(ref.current);
      decided(item.key, decision === "refuse" ? "refused by you" : replaced === null ? "approved by you" : "approved by you with other arguments");
    },
    [edited, written, reason, action.run, thread, call.toolCallId, decided, item.key],
  );
  const unavailable = became ? `This call ${became === noLongerWaits ? became : `was ${became}`}.` : lacking(rights, "approve");
  return (
    <section ref={ref} className={became ? "decide decided" : "decide"} aria-labelledby={id} data-test="approval" data-waits={became ? undefined : true}>
      <h3 id={id}>
        <code>{name}</code> {became || "waits for approval"}
      </h3>
      <p className="dim">
        {call.requestedAt ? (
          <>
            Asked <Age at={fromMicros(call.requestedAt)} /> ago.{" "}
          </>
        ) : (
          ""
        )}
        {call.expiresAt ? `It is refused by itself at ${time(fromMicros(call.expiresAt))}.` : ""}
      </p>
      {edited === null ? (
        <pre tabIndex={0} aria-label={`Arguments of ${name}`}>
          {written}
        </pre>
      ) : (
        <textarea
          aria-label={`New arguments of ${name}`}
          rows={Math.min(20, edited.split("\n").length + 1)}
          value={edited}
          readOnly={!!became}
          onChange={(e) => setEdited(e.target.value)}
          spellCheck={false}
        />
      )}
      <label className="field">
        Reason <input value={reason} maxLength={4096} readOnly={!!became} onChange={(e) => setReason(e.target.value)} placeholder="The model reads why a call was refused" />
      </label>
      <div className="buttons">
        <Button label="Approve" name={`Approve ${name}`} kind="primary" busy={action.busy} unavailable={unavailable} onClick={() => void decide("approve")} />
        <Button label="Refuse" name={`Refuse ${name}`} kind="danger" busy={action.busy} unavailable={unavailable} onClick={() => void decide("refuse")} />
        {edited === null ? (
          <Button label="Change the arguments" name={`Change the arguments of ${name}`} unavailable={unavailable} onClick={() => setEdited(written)} />
        ) : (
          <Button label="Keep the arguments" name={`Keep the arguments of ${name}`} unavailable={became && unavailable} onClick={() => setEdited(null)} />
        )}
      </div>
      {/* Below the buttons, so that they stay under the pointer. */}
      <Failure text={wrong} onDismiss={() => setWrong("")} />
      <Failure text={action.error} onDismiss={action.clear} />
    </section>
  );
});
