// Messages that are on their way to threads, and texts that are not sent yet. They outlive the views in which they were written.
import { useSyncExternalStore } from "react";
import { messageOf, post, RequestError, threadPath } from "../api";

/** A message that is on its way. Its key makes the thread store it once, however often it is sent. */
export interface Outgoing {
  key: string;
  content: string;
  error: string;
  /** Whether it is sent again by itself, because the server has asked for a pause. */
  again: boolean;
}

/** Sends messages to one thread, one after the other, in the order in which they were written. One that fails stays, and so do those after it. */
class Outbox {
  private messages: readonly Outgoing[] = [];
  private text = "";
  private sending = "";
  private readonly listeners = new Set<() => void>();

  constructor(private readonly path: string) {}

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  readonly getMessages = () => this.messages;
  readonly getText = () => this.text;

  isEmpty(): boolean {
    return this.messages.length === 0 && this.text.trim() === "";
  }

  write(text: string): void {
    this.text = text;
    this.listeners.forEach((l) => l());
  }

  /** Sends what is written. */
  send(): void {
    const content = this.text;
    this.text = "";
    this.set([...this.messages, { key: crypto.randomUUID(), content, error: "", again: false }]);
  }

  sendAgain(key: string): void {
    this.set(this.messages.map((o) => (o.key === key ? { ...o, error: "" } : o)));
  }

  discard(key: string): void {
    this.set(this.messages.filter((o) => o.key !== key));
  }

  /** Takes a message back that was not sent. It goes before what was typed since. */
  edit(o: Outgoing): void {
    this.text = this.text ? `${o.content}\n${this.text}` : o.content;
    this.discard(o.key);
  }

  private set(messages: readonly Outgoing[]): void {
    this.messages = messages;
    this.listeners.forEach((l) => l());
    void this.next();
  }

  private async next(): Promise<void> {
    const first = this.messages[0];
    if (!first || first.error || this.sending === first.key) return;
    this.sending = first.key;
    try {
      await post(this.path, { content: first.content, idempotencyKey: first.key });
      this.discard(first.key);
    } catch (err) {
      this.sending = "";
      const pause = err instanceof RequestError ? err.retryAfter : 0;
      this.set(this.messages.map((o) => (o.key === first.key ? { ...o, error: messageOf(err), again: pause > 0 } : o)));
      if (pause > 0) setTimeout(() => this.sendAgain(first.key), pause);
    }
  }
}

const outboxes = new Map<string, Outbox>();

addEventListener("beforeunload", (e) => {
  if ([...outboxes.values()].some((o) => !o.isEmpty())) e.preventDefault();
});

/** Returns the outbox of a thread. Another thread of the same name has another one. */
export function useOutbox(namespace: string, name: string, threadId: string) {
  const key = `${namespace}/${name}/${threadId}`;
  let outbox = outboxes.get(key);
  if (!outbox) outboxes.set(key, (outbox = new Outbox(threadPath(namespace, threadId, "queue"))));
  return {
    outbox,
    messages: useSyncExternalStore(outbox.subscribe, outbox.getMessages),
    text: useSyncExternalStore(outbox.subscribe, outbox.getText),
  };
}
