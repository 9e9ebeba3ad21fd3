// What a run did, as spans of time, and the scale on which they are drawn. Times are milliseconds.
import type { Message, Run, ThreadEvent } from "../types";

export type SpanKind = "model" | "tool" | "waiting" | "input";

export interface Span {
  kind: SpanKind;
  label: string;
  start: number;
  end: number;
  /** Whether it goes on. */
  open: boolean;
  failed: boolean;
  /** The step to which it belongs, from 1 on. A step is a model call with the tool calls that it asked for. */
  step: number;
  /** The message that shows it. */
  message?: string;
}

/**
 * Returns what a run did, in the order in which it began. `events` are those of the run, oldest first; `now` is the end of what goes on. When only the
 * first events are known, what goes on there ends at the last of them, because nothing says for how long it went on.
 */
export function spansOf(run: Run, events: readonly ThreadEvent[], now: number, onlyFirst = false): Span[] {
  return new Reading(run, now, onlyFirst).read(events);
}

/** Reads the events of a run one after the other. */
class Reading {
  private spans: Span[] = [];
  private step = 0;
  private end: number;
  /** Since when the model, or what is between two events, is at work. */
  private since: number;
  private waiting?: Span;
  private tools = new Map<string, Span>();
  private approvals = new Map<string, Span>();
  /** The message that asked for a call. */
  private askedIn = new Map<string, string>();

  constructor(
    private readonly run: Run,
    now: number,
    private readonly onlyFirst: boolean,
  ) {
    this.since = run.startedAt / 1000;
    this.end = run.endedAt ? run.endedAt / 1000 : Math.max(now, this.since);
  }

  read(events: readonly ThreadEvent[]): Span[] {
    for (const event of events) this.take(event, event.createdAt / 1000);
    const last = (events.at(-1)?.createdAt ?? this.run.startedAt) / 1000;
    const open = !this.run.endedAt && !this.onlyFirst;
    // The present time that is drawn moves on once a second, so events may be newer.
    if (open) this.end = Math.max(this.end, last);
    else if (this.onlyFirst) this.end = last;
    for (const span of [...this.tools.values(), ...this.approvals.values(), ...(this.waiting ? [this.waiting] : [])]) {
      span.end = this.end;
      span.open = open;
    }
    if (open && this.run.status === "running" && this.tools.size === 0 && !this.waiting) {
      this.step++;
      this.add({ kind: "model", label: "model call", start: this.since, end: this.end, open: true });
    }
    return this.spans.sort((a, b) => a.start - b.start || a.end - b.end);
  }

  private add(span: Partial<Span> & Pick<Span, "kind" | "label" | "start" | "end">): Span {
    const whole: Span = { open: false, failed: false, step: Math.max(this.step, 1), ...span };
    this.spans.push(whole);
    return whole;
  }

  private take(event: ThreadEvent, at: number): void {
    const data = event.data ?? {};
    if (this.waiting && event.type !== "run.waiting" && !event.type.startsWith("approval.")) {
      this.waiting.end = at;
      this.waiting = undefined;
      this.since = at;
    }
    switch (event.type) {
      case "message.created":
        this.message(data as Message, event, at);
        break;
      case "tool.started":
        this.tools.set(data.toolCallId, this.add({ kind: "tool", label: data.name, start: at, end: at, message: this.askedIn.get(data.toolCallId) ?? event.messageId }));
        break;
      case "tool.ended":
        this.toolEnded(data, event, at);
        break;
      case "approval.requested":
        this.tools.delete(data.toolCallId);
        this.approvals.set(data.toolCallId, this.add({ kind: "waiting", label: `approval of ${data.name}`, start: at, end: at, message: this.askedIn.get(data.toolCallId) }));
        break;
      case "approval.decided": {
        const span = this.approvals.get(data.toolCallId);
        if (span) {
          span.end = at;
          // No decision that came in time is a refusal.
          span.failed = !data.approved;
          this.approvals.delete(data.toolCallId);
        }
        this.since = at;
        break;
      }
      case "run.waiting":
        // An approval is shown by itself.
        if (!this.waiting && this.approvals.size === 0) this.waiting = this.add({ kind: "waiting", label: data.reason ? `waits: ${data.reason}` : "waits for a subagent", start: at, end: at });
        break;
    }
  }

  private message(m: Message, event: ThreadEvent, at: number): void {
    const id = m.id ?? event.messageId;
    if (m.role === "assistant") {
      if (!m.depth) this.step++;
      for (const call of m.tool_calls ?? []) this.askedIn.set(call.id, id);
      this.add({ kind: "model", label: m.depth ? "model call of a prompt" : "model call", start: Math.min(this.since, at), end: at, failed: m.status === "failed", message: id });
      this.since = at;
    } else if (m.role === "user" || m.role === "system") {
      this.add({ kind: "input", label: m.role === "user" ? "message of the user" : "message of the system", start: at, end: at, step: this.step + 1, message: id });
    }
  }

  private toolEnded(data: any, event: ThreadEvent, at: number): void {
    let span = this.tools.get(data.toolCallId);
    // A call that was made at once has an end only, with its duration.
    span ??= this.add({ kind: "tool", label: data.name, start: at - (data.durationMs ?? 0), end: at, message: this.askedIn.get(data.toolCallId) ?? event.messageId });
    span.end = at;
    span.failed = data.status === "error";
    this.tools.delete(data.toolCallId);
    this.since = at;
  }
}

/** A stretch of time. A compressed one is drawn shorter than it was. */
export interface Segment {
  start: number;
  end: number;
  /** How much of the width it takes, in milliseconds of the scale, and how much the segments before it take. */
  width: number;
  before: number;
  compressed: boolean;
}

export interface Scale {
  segments: Segment[];
  width: number;
}

/** A gap is compressed when it is longer than this part of the time in which something was at work, and than `shortest`. */
const longest = 0.5;
const shortest = 250;
/** A compressed gap is as wide as this part of that time. */
const compressed = 0.15;

/**
 * Returns the scale for spans. Stretches in which nothing was at work, such as the night before an approval or the hours of a subagent, are compressed,
 * so that the steps remain visible beside them.
 */
export function scaleOf(spans: Span[]): Scale {
  const stretches = stretchesOf(spans);
  const worked = stretches.reduce((sum, s) => (s.idle ? sum : sum + s.end - s.start), 0);
  let before = 0;
  const segments = stretches.map(({ start, end, idle }): Segment => {
    const long = idle && worked > 0 && end - start > Math.max(shortest, worked * longest);
    const segment = { start, end, width: long ? worked * compressed : end - start, before, compressed: long };
    before += segment.width;
    return segment;
  });
  return { segments, width: before };
}

interface Stretch {
  start: number;
  end: number;
  idle: boolean;
}

/** Returns the stretches in which something was at work, and those in which nothing was. A tool that waits for a subagent is not at work. */
function stretchesOf(spans: Span[]): Stretch[] {
  const changes = spans.flatMap(({ kind, start, end }) => {
    const working = kind === "model" || kind === "tool" ? 1 : 0;
    const waiting = kind === "waiting" ? 1 : 0;
    return [
      { at: start, working, waiting },
      { at: end, working: -working, waiting: -waiting },
    ];
  });
  changes.sort((a, b) => a.at - b.at);
  const stretches: Stretch[] = [];
  let working = 0;
  let waiting = 0;
  let since = changes[0]?.at ?? 0;
  for (const change of changes) {
    if (change.at > since) {
      const idle = working === 0 || waiting > 0;
      const last = stretches.at(-1);
      if (last?.idle === idle) last.end = change.at;
      else stretches.push({ start: since, end: change.at, idle });
      since = change.at;
    }
    working += change.working;
    waiting += change.waiting;
  }
  return stretches;
}

/** Returns where a time lies on a scale, from 0 to 1. */
export function position(scale: Scale, at: number): number {
  if (scale.width === 0) return 0;
  // The first segment that ends later.
  let from = 0;
  let to = scale.segments.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (at < scale.segments[middle].end) to = middle;
    else from = middle + 1;
  }
  const s = scale.segments[from];
  return s ? (s.before + (Math.max(0, at - s.start) / (s.end - s.start)) * s.width) / scale.width : 1;
}
