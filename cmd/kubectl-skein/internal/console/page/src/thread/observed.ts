// One thread as it is now: its value by the stream "observe", and what is being written at the moment by its events.
import { immutableJSONPatch, type JSONPatchDocument } from "immutable-json-patch";
import { useEffect, useState } from "react";
import { follow, get, messageOf, RequestError, threadPath } from "../api";
import type { ObservedThread, ThreadEvent, ThreadRecord } from "../types";

/** A tool call that is being made. */
export interface RunningCall {
  name: string;
  startedAt: number;
  progress?: string;
}

export interface Observed {
  value?: ObservedThread;
  connected: boolean;
  /** Why nothing more comes: the thread was deleted, or may not be read. */
  ended: string;
  /** The answer that a model is writing. */
  draft: string;
  /** By the id of the call. */
  running: ReadonlyMap<string, RunningCall>;
  /** The newest line of what happens, for people who cannot see the page. */
  news: string;
}

/** So many earlier events are read first while a run is under way, so that an answer is shown from its beginning. */
const earlierEvents = 1000;

/** Longer answers are read out up to here. The conversation has all of them. */
const longestNews = 1000;

const nothing: Observed = { connected: false, ended: "", draft: "", running: new Map(), news: "" };

/** What events say of the present moment. It is changed in place. */
class Moment {
  draft = "";
  running = new Map<string, RunningCall>();
  news = "";
  last = 0;

  take(event: ThreadEvent): void {
    this.last = Math.max(this.last, event.seq);
    const data = event.data ?? {};
    switch (event.type) {
      case "message.delta":
        this.draft += data.text ?? "";
        break;
      case "message.created":
        if (data.role === "assistant") this.draft = "";
        if (data.role === "assistant" && data.content) this.news = `The agent says: ${(data.content as string).slice(0, longestNews)}`;
        break;
      case "tool.started":
        this.running.set(data.toolCallId, { name: data.name, startedAt: event.createdAt / 1000 });
        this.news = `The tool ${data.name} is called.`;
        break;
      case "tool.progress": {
        const call = this.running.get(data.toolCallId);
        if (call) call.progress = [data.message, data.total ? `${data.progress} of ${data.total}` : data.progress].filter(Boolean).join(" ");
        break;
      }
      case "tool.ended":
        this.running.delete(data.toolCallId);
        break;
      case "approval.requested":
        this.running.delete(data.toolCallId);
        this.news = `The call of ${data.name} waits for approval.`;
        break;
      case "run.started":
        this.draft = "";
        break;
      case "run.waiting":
        this.draft = "";
        break;
      case "run.ended":
      case "run.rolledback":
      case "thread.destroyed":
      case "thread.terminated":
        this.draft = "";
        this.running.clear();
        if (event.type === "run.ended") this.news = `The run ${data.status ?? "ended"}.${data.message ? ` ${data.message}` : ""}`;
        break;
    }
  }
}

/** Observes a thread as long as the view is open. */
export function useObserved(namespace: string, name: string): Observed {
  const [observed, setObserved] = useState(nothing);
  useEffect(() => {
    const stopping = new AbortController();
    const moment = new Moment();
    let value: ObservedThread | undefined;
    let connected = false;
    let ended = "";
    let frame = 0;
    let stopEvents: (() => void) | undefined;
    const changed = () =>
      (frame ||= requestAnimationFrame(() => {
        frame = 0;
        setObserved({ value, connected, ended, draft: moment.draft, running: new Map(moment.running), news: moment.news });
      }));

    const followEvents = (thread: ThreadRecord) => {
      const underWay = thread.lastRun?.status === "running";
      moment.last = Math.max(0, thread.lastEvent - (underWay ? earlierEvents : 0));
      stopEvents = follow({
        path: () => `${threadPath(namespace, name, "events")}?after=${moment.last}`,
        protocol: "v1alpha1.events.runtime.skein.dev",
        onMessage: (event: ThreadEvent) => {
          moment.take(event);
          changed();
        },
      });
    };

    setObserved(nothing);
    const stopObserving = follow({
      path: () => `${threadPath(namespace, name, "observe")}?include=messages,state,values`,
      protocol: "v1alpha1.observe.runtime.skein.dev",
      onConnected: (now) => {
        connected = now;
        changed();
        // A WebSocket that is refused does not say why, so a plain request asks.
        if (!now) {
          get<ThreadRecord>(threadPath(namespace, name), stopping.signal).catch((err: unknown) => {
            if (stopping.signal.aborted) return;
            ended = messageOf(err);
            if (err instanceof RequestError && (err.code === 403 || err.code === 404)) stop();
            changed();
          });
        }
      },
      onMessage: (message) => {
        ended = "";
        value = message.value !== undefined ? (message.value as ObservedThread) : (immutableJSONPatch(value, message.patch as JSONPatchDocument) as ObservedThread);
        if (!stopEvents && value.thread) followEvents(value.thread);
        changed();
      },
      onEnd: (reason) => {
        ended = reason || "The thread was deleted.";
        changed();
      },
    });
    const stop = () => {
      stopObserving();
      stopEvents?.();
    };
    return () => {
      stopping.abort();
      stop();
      cancelAnimationFrame(frame);
    };
  }, [namespace, name]);
  return observed;
}
