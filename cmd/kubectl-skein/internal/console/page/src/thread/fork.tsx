// Makes a new thread that begins with the messages of this one.
import { useEffect, useRef, useState } from "react";
import { messageOf, post, threadPath } from "../api";
import { go } from "../route";
import type { Message } from "../types";
import { Button, Dialog, Failure } from "../ui";

interface ForkDialogProps {
  namespace: string;
  threadId: string;
  message: Message;
  onClose: () => void;
}

export function ForkDialog({ namespace, threadId, message, onClose }: ForkDialogProps) {
  const [title, setTitle] = useState("");
  const [say, setSay] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  // The same request has the same key, so that a repeat after a lost answer makes no second fork.
  const asked = useRef({ body: "", key: "" });
  const open = useRef(true);
  useEffect(() => {
    open.current = true;
    return () => void (open.current = false);
  }, []);
  const fork = async () => {
    const body = { messageId: message.id, ...(title.trim() && { title: title.trim() }), ...(say.trim() && { message: say.trim() }) };
    const text = JSON.stringify(body);
    if (asked.current.body !== text) asked.current = { body: text, key: crypto.randomUUID() };
    setBusy(true);
    setError("");
    try {
      const made = await post<{ metadata: { name: string; namespace?: string } }>(threadPath(namespace, threadId, "fork"), body, asked.current.key);
      // A viewer who has closed the dialog meanwhile stays where they are. The new thread is in the list.
      if (!open.current) return;
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
        <Button label={busy ? "Close" : "Cancel"} onClick={onClose} />
        <Button label="Fork" kind="primary" busy={busy} onClick={() => void fork()} />
      </div>
    </Dialog>
  );
}
