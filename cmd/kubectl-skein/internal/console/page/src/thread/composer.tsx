// The field in which the viewer writes to a thread.
import type { KeyboardEvent } from "react";
import { Button, Failure } from "../ui";
import { useOutbox } from "./outbox";

interface ComposerProps {
  namespace: string;
  name: string;
  threadId: string;
  underWay: boolean;
  /** Why the viewer may not send. */
  unavailable: string;
}

export function Composer({ namespace, name, threadId, underWay, unavailable }: ComposerProps) {
  const { outbox, messages, text } = useOutbox(namespace, name, threadId);
  const send = () => {
    if (text.trim() !== "" && !unavailable) outbox.send();
  };
  const onKeyDown = (e: KeyboardEvent) => {
    // Safari ends the composition of a letter before the key that ends it, which has this code.
    const composing = e.nativeEvent.isComposing || e.keyCode === 229;
    if (e.key !== "Enter" || e.shiftKey || composing) return;
    e.preventDefault();
    send();
  };
  return (
    <div className="composer">
      {messages.map((o) => (
        <div key={o.key} className="outgoing" data-test="outgoing">
          <span className="dim">{!o.error ? "Sending: " : o.again ? "Not sent yet; the page tries again: " : "Not sent: "}</span>
          {o.content}
          <Failure text={o.error} />
          {o.error && (
            <div className="buttons">
              <Button label="Send again" onClick={() => outbox.sendAgain(o.key)} />
              <Button label="Edit" name="Edit the message that was not sent" onClick={() => outbox.edit(o)} />
              <Button label="Discard" name="Discard the message that was not sent" onClick={() => outbox.discard(o.key)} />
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
          onChange={(e) => outbox.write(e.target.value)}
          onKeyDown={onKeyDown}
        />
        <Button label="Send" name={`Send the message to ${name}`} kind="primary" unavailable={unavailable} onClick={send} />
      </div>
    </div>
  );
}
