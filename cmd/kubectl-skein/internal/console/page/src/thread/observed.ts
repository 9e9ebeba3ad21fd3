// One thread as it is now: its value by the stream "observe", and what is being written at the moment by its events.
import { immutableJSONPatch, type JSONPatchDocument } from "immutable-json-patch";
import { useEffect, useState } from "react";
import { follow, refusalOf, threadPath } from "../api";
import type { ObservedThread, ThreadEvent } from "../types";
import { Moment, type Draft, type News, type RunningCall } from "./moment";

export type { RunningCall };

export interface Observed {
  value?: ObservedThread;
  connected: boolean;
  /** Why nothing more comes: the thread was deleted, does not exist, or may not be read. It is "" again when something comes. */
  ended: string;
  draft: Draft | null;
  running: ReadonlyMap<string, RunningCall>;
  news: readonly News[];
}

/** So many earlier events are read first while a run is under way, so that an answer is shown from its beginning. */
const earlierEvents = 1000;
/** A thread that was deleted is looked for again after this time, because another one may get its name. */
const lookAgain = 2000;

const nothing: Observed = { connected: false, ended: "", draft: null, running: new Map(), news: [] };

/** Observes a thread as long as the view is open. */
export function useObserved(namespace: string, name: string): Observed {
  const [observed, setObserved] = useState(nothing);
  useEffect(() => {
    setObserved(nothing);
    const observing = new Observing(namespace, name, setObserved);
    return () => observing.stop();
  }, [namespace, name]);
  return observed;
}

/** The streams of one thread. */
class Observing {
  private value?: ObservedThread;
  private connected = false;
  private ended = "";
  private moment = new Moment(0, 0);
  /** The thread whose events are followed. Another thread may get the same name. */
  private followed = "";
  private frame = 0;
  private timer = 0;
  private stopValue = () => {};
  private stopEvents = () => {};
  private readonly stopping = new AbortController();

  constructor(
    private readonly namespace: string,
    private readonly name: string,
    private readonly show: (observed: Observed) => void,
  ) {
    this.followValue();
  }

  stop(): void {
    this.stopping.abort();
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    this.stopValue();
    this.stopEvents();
  }

  /** Shows what is known. Changes that come together are drawn once. */
  private changed(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      const { value, connected, ended, moment } = this;
      // A run that has ended writes nothing, also when its last event was missed.
      const over = moment.draft && value?.thread.lastRun?.id === moment.draft.runId && !!value.thread.lastRun.endedAt;
      this.show({ value, connected, ended, draft: over ? null : moment.draft, running: moment.running, news: moment.news });
    });
  }

  private path(stream: string): string {
    return threadPath(this.namespace, this.name, stream);
  }

  private followValue(): void {
    const path = `${this.path("observe")}?include=messages,state,values`;
    this.stopValue();
    this.stopValue = follow({
      path: () => path,
      protocol: "v1alpha1.observe.runtime.skein.dev",
      onConnected: (connected) => {
        this.connected = connected;
        this.changed();
        if (!connected) void this.askWhy(`${path}&follow=false`);
      },
      onMessage: (message) => this.take(message),
      onEnd: () => {
        this.ended = "The thread was deleted.";
        this.stopEvents();
        this.followed = "";
        this.changed();
        this.timer = window.setTimeout(() => this.followValue(), lookAgain);
      },
    });
  }

  /** Asks why a WebSocket was refused, which does not say it. */
  private async askWhy(path: string): Promise<void> {
    const refusal = await refusalOf(path, this.stopping.signal);
    // What cannot be reached at the moment is no end: the page connects again.
    if (!refusal || this.stopping.signal.aborted || this.connected || refusal.code === 0 || refusal.code >= 500) return;
    this.ended ||= refusal.message;
    this.changed();
  }

  private take(message: { value?: ObservedThread; patch?: JSONPatchDocument }): void {
    this.ended = "";
    try {
      this.value = message.value ?? (immutableJSONPatch(this.value, message.patch!) as ObservedThread);
    } catch {
      this.followValue(); // a patch does not fit: the value is read anew
      return;
    }
    const thread = this.value?.thread;
    if (thread && (thread.threadId !== this.followed || thread.lastEvent < this.moment.last - earlierEvents)) this.followEvents(thread.threadId, thread.lastEvent, thread.lastRun?.status === "running");
    this.changed();
  }

  private followEvents(threadId: string, lastEvent: number, underWay: boolean): void {
    this.stopEvents();
    this.followed = threadId;
    const moment = new Moment(Math.max(0, lastEvent - (underWay ? earlierEvents : 0)), lastEvent);
    this.moment = moment;
    this.stopEvents = follow({
      path: () => `${this.path("events")}?after=${moment.last}`,
      protocol: "v1alpha1.events.runtime.skein.dev",
      onMessage: (event: ThreadEvent) => {
        moment.take(event);
        this.changed();
      },
    });
  }
}
