// The conversation of a thread, as it happens.
import { useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { get, messageOf, post, threadPath } from "../api";
import { lacking } from "../context";
import { plural } from "../format";
import { useAction } from "../hooks";
import { Markdown } from "../markdown";
import { go } from "../route";
import type { Message, MessageList, Rights, ThreadRecord } from "../types";
import { Button, Dialog, Empty, Failure } from "../ui";
import { Composer } from "./composer";
import { MessageView } from "./message";
import type { Observed } from "./observed";

const olderPage = 100;

interface Older {
  messages: Message[];
  more: boolean;
  loading: boolean;
  error: string;
  load: () => void;
}

/** Messages that are older than those that are observed. More are given up, the oldest first, so that a page that stays open does not grow for ever. */
const mostOlder = 5000;

/**
 * Messages before those that are observed, which are the newest ones. The server observes fewer as more come: those that it leaves out stay here, so that
 * nothing vanishes under the eyes of a reader.
 */
function useOlder(namespace: string, name: string, observed: Message[], record: ThreadRecord): Older {
  const [state, setState] = useState<{ messages: Message[]; more: boolean | null }>({ messages: [], more: null });
  const action = useAction();
  const before = useRef({ observed, count: record.messageCount });
  useLayoutEffect(() => {
    const was = before.current;
    before.current = { observed, count: record.messageCount };
    if (record.messageCount < was.count) {
      setState({ messages: [], more: null }); // some were removed, perhaps of these
      return;
    }
    const first = was.observed.findIndex((m) => m.id === observed[0]?.id);
    if (first > 0) {
      setState((old) => {
        const all = [...old.messages, ...was.observed.slice(0, first)];
        return all.length > mostOlder ? { messages: all.slice(-mostOlder), more: true } : { ...old, messages: all };
      });
    } else if (first < 0 && was.observed.length > 0) {
      setState({ messages: [], more: null }); // there may be others in between
    }
  }, [observed, record.messageCount]);
  const older = useMemo(() => {
    const known = new Set(observed.map((m) => m.id));
    return state.messages.filter((m) => !known.has(m.id));
  }, [state.messages, observed]);
  const load = () =>
    void action.run(async () => {
      // Newest first: messages that come meanwhile make this page overlap with what is there, and leave no gap.
      const path = `${threadPath(namespace, name, "messages")}?order=desc&limit=${olderPage}&offset=${observed.length + older.length}`;
      const page = await get<MessageList>(path);
      setState((old) => {
        const seen = new Set([...before.current.observed, ...old.messages].map((m) => m.id));
        return { messages: [...page.messages.filter((m) => !seen.has(m.id)).reverse(), ...old.messages], more: page.hasMore };
      });
    });
  const more = state.more ?? (observed.length > 0 && record.messageCount > observed.length + older.length);
  return { messages: older, more, loading: action.busy, error: action.error, load };
}

interface ConversationProps {
  namespace: string;
  name: string;
  observed: Observed;
  rights: Rights | undefined;
  jumpTo: string | undefined;
}

export function Conversation({ namespace, name, observed, rights, jumpTo }: ConversationProps) {
  const { thread: record, messages: newest = [] } = observed.value!;
  const older = useOlder(namespace, name, newest, record);
  const messages = useMemo(() => [...older.messages, ...newest], [older.messages, newest]);
  const results = useMemo(() => resultsOf(messages), [messages]);
  const [forking, setForking] = useState<Message | null>(null);
  const scroller = useScroll(messages, observed.draft, jumpTo, older);
  const cannotFork = lacking(rights, "fork");
  return (
    <>
      <div className="conversation" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        {older.more && <Button label={older.loading ? "Reading earlier messages…" : "Earlier messages"} busy={older.loading} onClick={older.load} />}
        <Failure text={older.error} />
        {messages.length === 0 && !observed.draft && <Empty>There is no message yet.</Empty>}
        {messages.map((m) =>
          m.role === "tool" && m.tool_call_id && results.shown.has(m.tool_call_id) ? null : (
            <MessageView key={m.id} message={m} results={results.byCall} running={observed.running} namespace={namespace} thread={name} highlighted={m.id === jumpTo} cannotFork={cannotFork} onFork={setForking} />
          ),
        )}
        {observed.draft && <Draft text={observed.draft} />}
        <Queue record={record} />
      </div>
      <Composer namespace={namespace} name={name} terminated={!!record.terminated} underWay={record.lastRun?.status === "running" || record.lastRun?.status === "waiting"} lacking={lacking(rights, "send")} />
      {forking && <ForkDialog namespace={namespace} name={name} message={forking} onClose={() => setForking(null)} />}
    </>
  );
}

/** Returns the results of tool calls by the id of the call, and which of these calls are in the messages. */
function resultsOf(messages: Message[]): { byCall: Map<string, Message>; shown: Set<string> } {
  const byCall = new Map<string, Message>();
  const shown = new Set<string>();
  for (const m of messages) {
    if (m.role === "tool" && m.tool_call_id) byCall.set(m.tool_call_id, m);
    for (const call of m.tool_calls ?? []) shown.add(call.id);
  }
  return { byCall, shown };
}

/** The part of an answer that a model has written so far. */
function Draft({ text }: { text: string }) {
  // Parsing a long answer again for each piece must not hold up what the viewer types.
  const shown = useDeferredValue(text);
  return (
    <article className="message assistant draft" aria-label="Answer that is being written" aria-busy="true" data-test="draft">
      <header>
        <span className="who">agent</span> <span className="dim">writes…</span>
      </header>
      <Markdown text={shown} />
    </article>
  );
}

function Queue({ record }: { record: ThreadRecord }) {
  if (!record.queuedCount) return null;
  return (
    <section className="queue" aria-label="Messages in the queue">
      <p className="dim">
        {plural(record.queuedCount, "message")} in the queue{record.parked ? ", until the thread continues" : ""}
      </p>
      {record.queuedMessages?.map((m) => (
        <article key={m.id} className="message user dim" aria-label="Message in the queue">
          {m.content && <Markdown text={m.content} />}
        </article>
      ))}
    </section>
  );
}

/** Keeps the newest message in sight while the viewer is at the end, and brings the message that the address names into sight. */
function useScroll(messages: Message[], draft: string, jumpTo: string | undefined, older: Older) {
  const ref = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const first = useRef<{ id: string; top: number } | null>(null);
  const jumped = useRef<string | undefined>(undefined);
  useEffect(() => {
    const el = ref.current!;
    const onScroll = () => {
      atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < 40;
    };
    el.addEventListener("scroll", onScroll, { passive: true });
    return () => el.removeEventListener("scroll", onScroll);
  }, []);
  useLayoutEffect(() => {
    const el = ref.current!;
    const target = jumpTo && jumped.current !== jumpTo ? el.querySelector<HTMLElement>(`[data-message="${CSS.escape(jumpTo)}"]`) : null;
    if (target) {
      jumped.current = jumpTo;
      atEnd.current = false;
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    } else if (jumpTo && jumped.current !== jumpTo && older.more) {
      if (!older.loading && !older.error) older.load(); // the message is earlier than what is here
    } else if (atEnd.current) {
      el.scrollTop = el.scrollHeight;
    } else if (first.current && messages[0] && messages[0].id !== first.current.id) {
      // Earlier messages came in above: what is in sight stays where it is.
      const anchor = el.querySelector<HTMLElement>(`[data-message="${CSS.escape(first.current.id)}"]`);
      if (anchor) el.scrollTop += anchor.offsetTop - first.current.top;
    }
    const head = messages[0] && el.querySelector<HTMLElement>(`[data-message="${CSS.escape(messages[0].id)}"]`);
    first.current = head ? { id: messages[0].id, top: head.offsetTop } : null;
  }, [messages, draft, jumpTo, older]);
  return ref;
}

interface ForkDialogProps {
  namespace: string;
  name: string;
  message: Message;
  onClose: () => void;
}

function ForkDialog({ namespace, name, message, onClose }: ForkDialogProps) {
  const [title, setTitle] = useState("");
  const [say, setSay] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  // The same key for each try, so that a repeat after a lost answer makes no second fork.
  const key = useRef(crypto.randomUUID());
  const last = useRef("");
  const fork = async () => {
    const body = { messageId: message.id, ...(title.trim() && { title: title.trim() }), ...(say.trim() && { message: say.trim() }) };
    const text = JSON.stringify(body);
    if (last.current && last.current !== text) key.current = crypto.randomUUID(); // another request
    last.current = text;
    setBusy(true);
    setError("");
    try {
      const made = await post<{ metadata: { name: string; namespace?: string } }>(threadPath(namespace, name, "fork"), body, key.current);
      onClose();
      go({ view: "thread", namespace: made.metadata.namespace || namespace, name: made.metadata.name, tab: "conversation" });
    } catch (err) {
      setError(messageOf(err));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Fork the thread at this message" onClose={onClose}>
      <p>The new thread begins with the messages up to this one. This thread stays as it is.</p>
      <label className="field">
        Title <input value={title} onChange={(e) => setTitle(e.target.value)} placeholder="The title of this thread, as a fork" />
      </label>
      <label className="field">
        Go on with the message <textarea value={say} rows={3} onChange={(e) => setSay(e.target.value)} placeholder="Leave it empty to decide later" />
      </label>
      <Failure text={error} />
      <div className="buttons">
        <Button label="Cancel" onClick={onClose} />
        <Button label="Fork" kind="primary" busy={busy} onClick={() => void fork()} />
      </div>
    </Dialog>
  );
}
