// One message of a conversation, with its tool calls and their results.
import { memo, useMemo, useState } from "react";
import { filePath } from "../api";
import { bytes, clock, duration, fromMicros, machineTime, plural, pretty, time, visible } from "../format";
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
  /** False when the run that made the message is over: a call without a result gets none any more. */
  runActive?: boolean;
  onFork: (message: Message) => void;
}

const roles: Record<string, string> = { system: "system", user: "user", assistant: "agent", tool: "tool" };

/** Reports whether a message is drawn alike. The maps are those of the whole conversation, and only the calls of the message count. */
function alike(old: MessageProps, now: MessageProps): boolean {
  for (const key of Object.keys({ ...old, ...now }) as (keyof MessageProps)[]) {
    if (key !== "results" && key !== "running" && old[key] !== now[key]) return false;
  }
  return (now.message.tool_calls ?? []).every(
    // The progress of a call is written into the same object, so a call that runs is drawn with each new map.
    ({ id }) => old.results.get(id) === now.results.get(id) && old.running.has(id) === now.running.has(id) && (old.running === now.running || !now.running.has(id)),
  );
}

export const MessageView = memo(function MessageView({ message: m, results, running, namespace, thread, highlighted, cannotFork, runActive = true, onFork }: MessageProps) {
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
        <time className="dim" dateTime={machineTime(at)} title={time(at)}>
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
      {m.tool_calls?.map((call) => <Call key={call.id} call={call} result={results.get(call.id)} running={running.get(call.id)} runActive={runActive} namespace={namespace} thread={thread} />)}
    </article>
  );
}, alike);

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
  runActive: boolean;
  namespace: string;
  thread: string;
}

function Call({ call, result, running, runActive, namespace, thread }: CallProps) {
  const failed = result?.tool_status === "error";
  const status = result ? (failed ? "failed" : "done") : running ? "running" : runActive ? "waits" : "no result";
  const preview = useMemo(() => oneLine(call.arguments), [call.arguments]);
  return (
    <div className="call" data-test="tool-call">
      <Later
        summary={
          <>
            <code>{visible(call.name)}</code> <span className={failed ? "bad" : "dim"}>{status}</span>
            {running?.progress && <span className="dim"> {running.progress}</span>} <span className="dim preview">{preview}</span>
          </>
        }
      >
        <h3>Arguments</h3>
        <Arguments call={call} />
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
  // Arguments may have a megabyte, so the text is cut first. A cut in the middle of much white space only makes the preview shorter.
  const line = visible(text.slice(0, 4 * longestPreview).replace(/\s+/g, " ").trim());
  return line.length > longestPreview || text.length > 4 * longestPreview ? line.slice(0, longestPreview) + "…" : line;
}

function Arguments({ call }: { call: ToolCall }) {
  const text = useMemo(() => pretty(call.arguments), [call.arguments]);
  return (
    <pre tabIndex={0} aria-label={`Arguments of ${call.name}`}>
      {text}
    </pre>
  );
}

const longestResult = 100_000;

function Result({ message, name }: { message: Message; name?: string }) {
  const [whole, setWhole] = useState(false);
  const text = useMemo(() => pretty(message.content ?? ""), [message.content]);
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
