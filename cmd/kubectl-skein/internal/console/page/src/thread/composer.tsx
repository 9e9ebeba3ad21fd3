// The field in which the viewer writes to a thread.
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { messageOf, post, RequestError, threadPath } from "../api";
import { Button, Failure } from "../ui";

interface ComposerProps {
  namespace: string;
  name: string;
  terminated: boolean;
  underWay: boolean;
  /** Why the viewer may not send. */
  lacking: string;
}

/** A message that is on its way. Its key makes the thread store it once, however often it is sent. */
interface Outgoing {
  key: string;
  content: string;
  error: string;
  /** Whether it is sent again by itself, because the server has asked for a pause. */
  again: boolean;
}

/** Messages that are sent one after the other, in the order in which they were written. One that fails stays, and so do those after it. */
function useOutbox(path: string) {
  const [outbox, setOutbox] = useState<Outgoing[]>([]);
  const sending = useRef("");
  const first = outbox[0];
  useEffect(() => {
    if (!first || first.error || sending.current === first.key) return;
    sending.current = first.key;
    post(path, { content: first.content, idempotencyKey: first.key }).then(
      () => setOutbox((all) => all.filter((o) => o.key !== first.key)),
      (err) => {
        sending.current = "";
        const retryAfter = err instanceof RequestError ? err.retryAfter : 0;
        setOutbox((all) => all.map((o) => (o.key === first.key ? { ...o, error: messageOf(err), again: retryAfter > 0 } : o)));
        if (retryAfter > 0) setTimeout(() => again(first.key), retryAfter);
      },
    );
  }, [path, first]);
  const again = (key: string) => setOutbox((all) => all.map((o) => (o.key === key ? { ...o, error: "" } : o)));
  return {
    outbox,
    add: (content: string) => setOutbox((all) => [...all, { key: crypto.randomUUID(), content, error: "", again: false }]),
    again,
    discard: (key: string) => setOutbox((all) => all.filter((o) => o.key !== key)),
  };
}

export function Composer({ namespace, name, terminated, underWay, lacking }: ComposerProps) {
  const [text, setText] = useState("");
  const { outbox, add, again, discard } = useOutbox(threadPath(namespace, name, "queue"));
  const unavailable = terminated ? "The thread is terminated and takes no more messages." : lacking;
  const send = () => {
    if (text.trim() === "" || unavailable) return;
    add(text);
    setText("");
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key !== "Enter" || e.shiftKey || e.nativeEvent.isComposing) return;
    e.preventDefault();
    send();
  };
  // A text that comes back from a failed message goes before what was typed since.
  const edit = (o: Outgoing) => {
    discard(o.key);
    setText((now) => (now ? `${o.content}\n${now}` : o.content));
  };
  return (
    <div className="composer">
      {outbox.map((o) => (
        <div key={o.key} className="outgoing" data-test="outgoing">
          <span className="dim">{!o.error ? "Sending: " : o.again ? "Not sent yet; the page tries again: " : "Not sent: "}</span>
          {o.content}
          <Failure text={o.error} />
          {o.error && (
            <div className="buttons">
              <Button label="Send again" onClick={() => again(o.key)} />
              <Button label="Edit" name="Edit the message that was not sent" onClick={() => edit(o)} />
              <Button label="Discard" name="Discard the message that was not sent" onClick={() => discard(o.key)} />
            </div>
          )}
        </div>
      ))}
      <div className="composer-row">
        <textarea
          aria-label={`Message to ${name}`}
          placeholder={unavailable || (underWay ? "The message waits in the queue until the run has taken it. Enter sends, Shift+Enter begins a line." : "Enter sends, Shift+Enter begins a line.")}
          rows={Math.min(8, Math.max(2, text.split("\n").length))}
          value={text}
          disabled={!!unavailable}
          onChange={(e) => setText(e.target.value)}
          onKeyDown={onKeyDown}
        />
        <Button label="Send" name={`Send the message to ${name}`} kind="primary" unavailable={unavailable} onClick={send} />
      </div>
    </div>
  );
}
