// The conversation of a thread, as it happens.
import { useMemo, useState } from "react";
import { lacking } from "../context";
import { plural } from "../format";
import { Markdown } from "../markdown";
import type { Message, Rights, ThreadRecord } from "../types";
import { Button, Empty, Failure } from "../ui";
import { Composer } from "./composer";
import { DraftView } from "./draft";
import { ForkDialog } from "./fork";
import { MessageView } from "./message";
import type { Observed } from "./observed";
import { useOlder } from "./older";
import { useScroll } from "./scroll";

interface ConversationProps {
  namespace: string;
  name: string;
  observed: Observed;
  /** Why the viewer can change nothing: the thread is gone. */
  gone: string;
  rights: Rights | undefined;
  jumpTo: string | undefined;
}

export function Conversation({ namespace, name, observed, gone, rights, jumpTo }: ConversationProps) {
  const { thread: record, messages: newest = [] } = observed.value!;
  const older = useOlder(namespace, record, newest);
  const messages = useMemo(() => [...older.messages, ...newest], [older.messages, newest]);
  const results = useMemo(() => resultsOf(messages), [messages]);
  const [forking, setForking] = useState<Message | null>(null);
  const scroller = useScroll(messages, observed.draft, jumpTo, older);
  const cannotFork = gone || lacking(rights, "fork");
  const underWay = record.lastRun?.status === "running" || record.lastRun?.status === "waiting";
  const cannotSend = gone || (record.terminated ? "The thread is terminated and takes no more messages." : lacking(rights, "send"));
  return (
    <>
      <div className="conversation" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        {older.more && <Button label={older.loading ? "Reading earlier messages…" : "Earlier messages"} busy={older.loading} onClick={older.load} />}
        <Failure text={older.error} />
        {messages.length === 0 && !observed.draft && <Empty>There is no message yet.</Empty>}
        {messages.map((m) =>
          m.role === "tool" && m.tool_call_id && results.shown.has(m.tool_call_id) ? null : (
            <MessageView key={m.id} message={m} results={results.byCall} running={observed.running} namespace={namespace} thread={name} highlighted={m.id === jumpTo} runActive={underWay && m.run_id === record.lastRun?.id} cannotFork={cannotFork} onFork={setForking} />
          ),
        )}
        {observed.draft && <DraftView draft={observed.draft} />}
        <Queue record={record} />
      </div>
      <Composer namespace={namespace} name={name} threadId={record.threadId} underWay={underWay} unavailable={cannotSend} />
      {forking && <ForkDialog namespace={namespace} threadId={record.threadId} message={forking} onClose={() => setForking(null)} />}
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
