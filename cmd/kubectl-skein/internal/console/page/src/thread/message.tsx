// One message of a conversation, with its tool calls and their results.
import { memo, useState } from "react";
import { filePath } from "../api";
import { bytes, clock, duration, fromMicros, plural, pretty, time } from "../format";
import { Markdown } from "../markdown";
import type { Attachment, Message, ToolCall } from "../types";
import { Button } from "../ui";
import type { RunningCall } from "./observed";

interface MessageProps {
  message: Message;
  /** The results of tool calls, by the id of the call. */
  results: ReadonlyMap<string, Message>;
  running: ReadonlyMap<string, RunningCall>;
  namespace: string;
  thread: string;
  highlighted: boolean;
  cannotFork: string;
  onFork: (message: Message) => void;
}

const roles: Record<string, string> = { system: "system", user: "user", assistant: "agent", tool: "tool" };

export const MessageView = memo(function MessageView({ message: m, results, running, namespace, thread, highlighted, cannotFork, onFork }: MessageProps) {
  const who = roles[m.role] ?? m.role;
  const at = fromMicros(m.created_at);
  return (
    <article className={`message ${m.role}${highlighted ? " highlighted" : ""}`} tabIndex={-1} data-message={m.id} aria-label={`Message of the ${who} at ${clock(at)}`}>
      <header>
        <span className="who">
          {who}
          {m.name && ` ${m.name}`}
          {m.side && ` (side ${m.side})`}
        </span>{" "}
        <time className="dim" dateTime={new Date(at).toISOString()} title={time(at)}>
          {clock(at)}
        </time>
        {m.status === "failed" && <span className="bad"> failed</span>}
        {m.summary && <span className="dim"> sums up {plural(m.summary.messages, "message")}</span>}
        <span className="actions">
          <Button label="Fork" name={`Fork at the message of the ${who} at ${clock(at)}`} unavailable={cannotFork} onClick={() => onFork(m)} />
        </span>
      </header>
      {m.reasoning_content && (
        <Later summary="Reasoning">
          <Markdown text={m.reasoning_content} />
        </Later>
      )}
      {m.role === "tool" ? <Result message={m} /> : m.content && <Markdown text={m.content} />}
      {m.attachments?.map((a) => <AttachmentLink key={a.path} attachment={a} namespace={namespace} thread={thread} />)}
      {m.tool_calls?.map((call) => <Call key={call.id} call={call} result={results.get(call.id)} running={running.get(call.id)} namespace={namespace} thread={thread} />)}
    </article>
  );
});

/** Content that is drawn once it is opened, because results may be long and many. */
function Later({ summary, children }: { summary: React.ReactNode; children: React.ReactNode }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="later" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>{summary}</summary>
      {open && children}
    </details>
  );
}

interface CallProps {
  call: ToolCall;
  result: Message | undefined;
  running: RunningCall | undefined;
  namespace: string;
  thread: string;
}

function Call({ call, result, running, namespace, thread }: CallProps) {
  const failed = result?.tool_status === "error";
  const status = result ? (failed ? "failed" : "done") : running ? "running" : "waits";
  return (
    <div className={`call ${status}`} data-test="tool-call">
      <Later
        summary={
          <>
            <code>{call.name}</code> <span className={failed ? "bad" : "dim"}>{status}</span>
            {running?.progress && <span className="dim"> {running.progress}</span>} <span className="dim preview">{oneLine(call.arguments)}</span>
          </>
        }
      >
        <h3>Arguments</h3>
        <pre tabIndex={0} aria-label={`Arguments of ${call.name}`}>
          {pretty(call.arguments)}
        </pre>
        {result && (
          <>
            <h3>Result</h3>
            <Result message={result} name={call.name} />
            {result.attachments?.map((a) => <AttachmentLink key={a.path} attachment={a} namespace={namespace} thread={thread} />)}
          </>
        )}
      </Later>
    </div>
  );
}

const longestPreview = 120;

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > longestPreview ? line.slice(0, longestPreview) + "…" : line;
}

const longestResult = 100_000;

function Result({ message, name }: { message: Message; name?: string }) {
  const [whole, setWhole] = useState(false);
  const text = pretty(message.content ?? "");
  const cut = !whole && text.length > longestResult;
  return (
    <>
      <pre tabIndex={0} className={message.tool_status === "error" ? "bad" : ""} aria-label={`Result of ${name ?? message.name ?? "a tool"}`} data-test="tool-result">
        {cut ? text.slice(0, longestResult) : text}
      </pre>
      {cut && <Button label={`Show all ${bytes(text.length)}`} onClick={() => setWhole(true)} />}
    </>
  );
}

function AttachmentLink({ attachment: a, namespace, thread }: { attachment: Attachment; namespace: string; thread: string }) {
  return (
    <a className="attachment" href={filePath(namespace, thread, a.path)} download>
      {a.name || a.path} {a.size !== undefined && <span className="dim">{bytes(a.size)}</span>}
    </a>
  );
}

/** Writes how long something took, from microseconds to microseconds. */
export function took(from: number, to: number): string {
  return duration(Math.max(0, to - from) / 1000);
}
