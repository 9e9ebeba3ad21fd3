// The field in which the viewer writes to a thread.
import { useRef, useState, type KeyboardEvent } from "react";
import { post, threadPath } from "../api";
import { useAction } from "../hooks";
import { Button, Failure } from "../ui";

interface ComposerProps {
  namespace: string;
  name: string;
  terminated: boolean;
  underWay: boolean;
  /** Why the viewer may not send. */
  lacking: string;
}

export function Composer({ namespace, name, terminated, underWay, lacking }: ComposerProps) {
  const [text, setText] = useState("");
  const action = useAction();
  // A text has one key, so that sending it again after a lost answer stores no second message.
  const sent = useRef({ text: "", key: "" });
  const unavailable = terminated ? "The thread is terminated and takes no more messages." : lacking;
  const send = async () => {
    const content = text;
    if (content.trim() === "" || unavailable) return;
    if (sent.current.text !== content) sent.current = { text: content, key: crypto.randomUUID() };
    const { key } = sent.current;
    if (await action.run(() => post(threadPath(namespace, name, "queue"), { content, idempotencyKey: key }))) {
      sent.current = { text: "", key: "" };
      // What was typed meanwhile stays.
      setText((now) => (now === content ? "" : now));
    }
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key !== "Enter" || e.shiftKey || e.nativeEvent.isComposing) return;
    e.preventDefault();
    void send();
  };
  return (
    <div className="composer">
      <Failure text={action.error} onDismiss={action.clear} />
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
        <Button label="Send" name={`Send the message to ${name}`} kind="primary" busy={action.busy} unavailable={unavailable} onClick={() => void send()} />
      </div>
    </div>
  );
}
