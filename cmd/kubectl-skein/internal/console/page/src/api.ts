// Requests to the console's server, which makes them with the viewer's kubeconfig.
import type { Status } from "./types";

const runtimeAPI = "/apis/runtime.skein.dev/v1alpha1";

/** A refused request. Its message says what to do. */
export class RequestError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
    /** After how many milliseconds the same request may succeed; 0 when the server does not say. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** Returns the path of a thread in the runtime API, or of something below it. Each part is escaped. */
export function threadPath(namespace: string, thread: string, ...below: string[]): string {
  return [runtimeAPI, "namespaces", namespace, "threads", thread, ...below].map((part, i) => (i === 0 ? part : encodeURIComponent(part))).join("/");
}

/** Returns the path of a file of a thread. The slashes of its path separate parts. */
export function filePath(namespace: string, thread: string, path: string): string {
  return threadPath(namespace, thread, "files", ...path.split("/").filter((part) => part !== ""));
}

export function firingsPath(namespace: string, effect: string): string {
  return `${runtimeAPI}/namespaces/${encodeURIComponent(namespace)}/firings/${encodeURIComponent(effect)}`;
}

/** A server that asks for a longer pause, in seconds, is asked again after this one. */
const longestRetry = 30;

async function failure(response: Response): Promise<RequestError> {
  const text = await response.text().catch(() => "");
  const retryAfter = Math.min(Number(response.headers.get("Retry-After")) || 0, longestRetry) * 1000;
  try {
    const status = JSON.parse(text) as Status;
    if (status.message) return new RequestError(response.status, status.reason ?? "", status.message, retryAfter);
  } catch {
    // It is not JSON: the text itself is all there is.
  }
  // The API server says so in words of its own when it does not reach the manager.
  if (response.status === 503) return new RequestError(503, "ServiceUnavailable", `Skein does not answer at present: try again in a moment. (${text.trim()})`);
  return new RequestError(response.status, "", text.trim() || `The server answered ${response.status}.`);
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (err) {
    if (init.signal?.aborted) throw err;
    throw new RequestError(0, "Unreachable", "The console does not answer. Is kubectl skein console still running?");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** So often a read that the server puts off is made again. */
const retries = 4;

/** Reads JSON. A read that the server puts off is made again after the pause that it asks for. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  for (let n = 0; ; n++) {
    try {
      return (await (await ask(path, { signal })).json()) as T;
    } catch (err) {
      if (!(err instanceof RequestError) || !err.retryAfter || n === retries || signal?.aborted) throw err;
      await new Promise((resolve) => setTimeout(resolve, err.retryAfter));
    }
  }
}

/** Reads at most `limit` bytes of a text, and reports whether there is more. */
export async function getText(path: string, limit: number, signal?: AbortSignal): Promise<{ text: string; more: boolean }> {
  const response = await ask(path, { signal });
  const reader = response.body?.getReader();
  if (!reader) return { text: "", more: false };
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { text: text + decoder.decode(), more: false };
    const room = limit - bytes;
    if (value.length > room) {
      text += decoder.decode(value.subarray(0, room));
      await reader.cancel();
      return { text, more: true };
    }
    bytes += value.length;
    text += decoder.decode(value, { stream: true });
  }
}

/** Reads a file as it is. */
export async function getBlob(path: string, signal?: AbortSignal): Promise<Blob> {
  return (await ask(path, { signal })).blob();
}

/** Sends JSON. A key makes a repeat of the request change nothing. */
export function post<T>(path: string, body: unknown, key?: string): Promise<T> {
  return postText(path, JSON.stringify(body), key);
}

/** Sends a text that is JSON already. */
export async function postText<T>(path: string, body: string, key?: string): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  return (await (await ask(path, { method: "POST", headers, body })).json()) as T;
}

/** Returns what went wrong, for people. */
export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}

function socketAddress(path: string): string {
  return (location.protocol === "https:" ? "wss://" : "ws://") + location.host + path;
}

export interface StreamOptions {
  /** Returns the path to connect to. It is called for each connection, so that a stream goes on where it was. */
  path: () => string;
  protocol?: string;
  onMessage: (message: any) => void;
  /** Whether the stream is connected. While it is not, it connects again by itself. */
  onConnected?: (connected: boolean) => void;
  /** Says why the stream has ended for good. */
  onEnd?: (reason: string) => void;
}

const firstPause = 250;
const longestPause = 10_000;
/** A connection that was open for so long was a good one, even when no message came: the next one is made soon. */
const goodAfter = 5000;

/**
 * Follows a stream of JSON texts over a WebSocket, and connects again when it breaks. WebSockets are used because a browser opens only six other
 * connections to a host, which a few tabs would use up. It returns a function that ends the stream.
 */
export function follow(options: StreamOptions): () => void {
  let ended = false;
  let socket: WebSocket | undefined;
  let timer: number | undefined;
  let pause = firstPause;
  const connect = () => {
    socket = new WebSocket(socketAddress(options.path()), options.protocol ? [options.protocol] : []);
    let opened = Infinity;
    socket.onopen = () => {
      opened = Date.now();
      options.onConnected?.(true);
    };
    socket.onmessage = (event) => {
      pause = firstPause;
      if (!ended) options.onMessage(JSON.parse(event.data as string));
    };
    socket.onclose = (event) => {
      if (ended) return;
      options.onConnected?.(false);
      if (event.code === 1000) {
        ended = true;
        options.onEnd?.(event.reason);
        return;
      }
      if (Date.now() - opened > goodAfter) pause = firstPause;
      timer = window.setTimeout(connect, pause);
      pause = Math.min(pause * 2, longestPause);
    };
  };
  connect();
  return () => {
    ended = true;
    clearTimeout(timer);
    socket?.close();
  };
}

/** The WebSocket protocol of events. */
export const eventsProtocol = "v1alpha1.events.runtime.skein.dev";

/** Reports whether the server closed a stream of events because the log ends. Otherwise the thread was deleted. */
export function isEndOfLog(reason: string): boolean {
  return reason.startsWith("EndOfLog");
}

/**
 * Reads the events of a thread after `after`, until `take` returns false or the log ends. `take` gets each event.
 */
export function readEvents(namespace: string, thread: string, after: number, take: (event: any) => boolean, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const path = `${threadPath(namespace, thread, "events")}?after=${after}&follow=false`;
    const socket = new WebSocket(socketAddress(path), [eventsProtocol]);
    let done = false;
    const end = (err?: Error) => {
      if (done) return;
      done = true;
      signal.removeEventListener("abort", onAbort);
      socket.close();
      if (err) reject(err);
      else resolve();
    };
    const onAbort = () => end(new DOMException("The view was left.", "AbortError"));
    signal.addEventListener("abort", onAbort);
    socket.onmessage = (event) => {
      if (!done && !take(JSON.parse(event.data as string))) end();
    };
    socket.onclose = (event) => {
      if (event.code === 1000) end(isEndOfLog(event.reason) ? undefined : new RequestError(404, "NotFound", "The thread was deleted."));
      else end(new RequestError(0, "StreamEnded", event.reason || "The events of the thread cannot be read at present."));
    };
  });
}

/** Asks whether a stream would be refused, and returns why; undefined when it would not. */
export async function refusalOf(path: string, signal: AbortSignal): Promise<RequestError | undefined> {
  try {
    const response = await ask(path, { signal });
    await response.body?.cancel();
    return undefined;
  } catch (err) {
    return err instanceof RequestError ? err : undefined;
  }
}
