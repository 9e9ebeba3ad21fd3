// What the events of a thread say of the present moment.
import type { Message, ThreadEvent } from "../types";

/** A tool call that is being made. */
export interface RunningCall {
  name: string;
  startedAt: number;
  progress?: string;
}

/** The answer that a model is writing. */
export interface Draft {
  messageId: string;
  runId: string;
  text: string;
  reasoning: string;
  /** Whether its beginning is not here. */
  partial: boolean;
}

/** A line for people who cannot see the page. */
export interface News {
  seq: number;
  text: string;
}

const mostNews = 20;
/** Longer answers are read out up to here. The conversation has all of them. */
const longestNews = 1000;

/** What happens at present. Its parts are new objects when they change, and the same ones otherwise. */
export class Moment {
  draft: Draft | null = null;
  /** By the id of the call. */
  running: ReadonlyMap<string, RunningCall> = new Map();
  news: readonly News[] = [];
  /** The sequence number of the newest event. */
  last: number;
  private readonly first: number;

  /**
   * Begins with the events after `after`. Those up to `known` happened before the view was opened, and are no news.
   */
  constructor(
    after: number,
    private readonly known: number,
  ) {
    this.last = after;
    this.first = after;
  }

  take(event: ThreadEvent): void {
    // A stream that begins in the middle of an answer does not have its beginning.
    const partial = this.last === this.first && this.first > 0;
    this.last = Math.max(this.last, event.seq);
    const data = event.data ?? {};
    switch (event.type) {
      case "message.delta":
        this.delta(event, partial);
        break;
      case "message.created":
        this.created(event, data as Message);
        break;
      case "tool.started":
        this.change(data.toolCallId, { name: data.name, startedAt: event.createdAt / 1000 });
        this.tell(event, `The tool ${data.name} is called.`);
        break;
      case "tool.progress": {
        const call = this.running.get(data.toolCallId);
        if (call) this.change(data.toolCallId, { ...call, progress: [data.message, data.total ? `${data.progress} of ${data.total}` : data.progress].filter(Boolean).join(" ") });
        break;
      }
      case "tool.ended":
        this.change(data.toolCallId, null);
        break;
      case "approval.requested":
        this.change(data.toolCallId, null);
        this.tell(event, `The call of ${data.name} waits for approval.`);
        break;
      case "run.started":
      case "run.waiting":
        this.draft = null;
        break;
      case "run.ended":
        this.rest();
        this.tell(event, `The run ${data.status ?? "ended"}.${data.message ? ` ${data.message}` : ""}`);
        break;
      case "run.rolledback":
      case "thread.destroyed":
      case "thread.terminated":
        this.rest();
        break;
    }
  }

  private rest(): void {
    this.draft = null;
    if (this.running.size > 0) this.running = new Map();
  }

  private delta(event: ThreadEvent, partial: boolean): void {
    const { text = "", reasoning = "", reset = false } = event.data ?? {};
    const messageId = event.messageId ?? "";
    const same = this.draft?.messageId === messageId;
    // A model call that is repeated withdraws what it has written.
    const before = same && !reset ? this.draft! : { text: "", reasoning: "", partial: partial && !reset };
    this.draft = { messageId, runId: event.runId ?? "", text: before.text + text, reasoning: before.reasoning + reasoning, partial: before.partial };
  }

  private created(event: ThreadEvent, m: Message): void {
    const id = m.id ?? event.messageId;
    if (this.draft && (this.draft.messageId === id || (m.role === "assistant" && !m.depth))) this.draft = null;
    if (m.role === "assistant" && m.content && !m.depth && !m.silent) this.tell(event, `The agent says: ${m.content.slice(0, longestNews)}`);
  }

  private change(id: string, call: RunningCall | null): void {
    const running = new Map(this.running);
    if (call) running.set(id, call);
    else running.delete(id);
    this.running = running;
  }

  private tell(event: ThreadEvent, text: string): void {
    if (event.seq > this.known) this.news = [...this.news, { seq: event.seq, text }].slice(-mostNews);
  }
}
