// The globals of Skein's sandboxes, for projects that compile with "lib": ["es2023"] and without "dom", so that a use of
// what sandboxes do not have (fetch, document, process, …) is an error. `kubectl skein types --globals` prints this file.
interface Console {
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}
declare var console: Console;

declare class TextEncoder {
  readonly encoding: 'utf-8';
  encode(text?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(input?: ArrayBufferLike | ArrayBufferView, options?: { stream?: boolean }): string;
}

declare class URLSearchParams {
  constructor(init?: string | Iterable<readonly [string, string]> | Record<string, string>);
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  forEach(f: (value: string, name: string, all: URLSearchParams) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string, base?: string): boolean;
  static parse(url: string, base?: string): URL | null;
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  hash: string;
  readonly searchParams: URLSearchParams;
  toJSON(): string;
}

type HeadersInit = Headers | Iterable<readonly [string, string]> | Record<string, string>;
declare class Headers {
  constructor(init?: HeadersInit | null);
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  forEach(f: (value: string, name: string, all: Headers) => void, self?: any): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

interface ReadableStreamDefaultController<R = any> {
  readonly desiredSize: number | null;
  enqueue(chunk: R): void;
  close(): void;
  error(reason?: any): void;
}
interface ReadableStreamDefaultReader<R = any> {
  readonly closed: Promise<undefined>;
  read(): Promise<{ value: R; done: false } | { value: undefined; done: true }>;
  cancel(reason?: any): Promise<void>;
  releaseLock(): void;
}
interface UnderlyingSource<R = any> {
  start?(controller: ReadableStreamDefaultController<R>): unknown;
  /** Called when a read finds no data. */
  pull?(controller: ReadableStreamDefaultController<R>): unknown;
  cancel?(reason?: any): unknown;
}
declare class ReadableStream<R = any> {
  constructor(source?: UnderlyingSource<R>);
  static from<R>(iterable: Iterable<R> | AsyncIterable<R>): ReadableStream<R>;
  readonly locked: boolean;
  cancel(reason?: any): Promise<void>;
  getReader(): ReadableStreamDefaultReader<R>;
  values(options?: { preventCancel?: boolean }): AsyncIterableIterator<R>;
  [Symbol.asyncIterator](): AsyncIterableIterator<R>;
}

type BodyChunk = string | ArrayBuffer | ArrayBufferView;
/** Text, bytes, a form, an iterable or stream of texts or bytes, or an object, which becomes JSON. */
type BodyInit =
  | BodyChunk
  | URLSearchParams
  | ReadableStream<BodyChunk>
  | AsyncIterable<BodyChunk>
  | Iterable<BodyChunk>
  | (object & NoIterable)
  | (NoIterable & { readonly [name: string]: unknown });
type NoIterable = { readonly [Symbol.iterator]?: never; readonly [Symbol.asyncIterator]?: never };
interface Body {
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  json(): Promise<any>;
  text(): Promise<string>;
}
interface RequestInit {
  method?: string;
  headers?: HeadersInit;
  /** Not allowed with GET and HEAD. */
  body?: BodyInit | null;
}
interface Request extends Body {}
declare class Request {
  constructor(input: Request | string | URL, init?: RequestInit);
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  /** Fails if the body is a stream. */
  clone(): Request;
}
interface ResponseInit {
  /** 200 to 599. */
  status?: number;
  statusText?: string;
  headers?: HeadersInit;
}
interface Response extends Body {}
declare class Response {
  constructor(body?: BodyInit | null, init?: ResponseInit);
  static json(value: unknown, init?: ResponseInit): Response;
  static redirect(url: string | URL, status?: number): Response;
  readonly status: number;
  readonly statusText: string;
  readonly ok: boolean;
  readonly type: 'default';
  readonly headers: Headers;
  /** Fails if the body is a stream. */
  clone(): Response;
}

interface AbortSignal {
  readonly aborted: boolean;
  readonly reason: any;
  onabort: ((event: { type: 'abort'; target: AbortSignal }) => void) | null;
  throwIfAborted(): void;
  addEventListener(type: 'abort', listener: (event: { type: 'abort'; target: AbortSignal }) => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: (event: { type: 'abort'; target: AbortSignal }) => void): void;
}
declare var AbortSignal: { abort(reason?: any): AbortSignal; any(signals: Iterable<AbortSignal>): AbortSignal; timeout(ms: number): AbortSignal };
declare class AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare class DOMException extends Error {
  constructor(message?: string, name?: string);
  readonly code: number;
}

declare function setTimeout<A extends unknown[]>(f: (...args: A) => void, ms?: number, ...args: A): number;
declare function setInterval<A extends unknown[]>(f: (...args: A) => void, ms?: number, ...args: A): number;
declare function clearTimeout(id: number | undefined): void;
declare function clearInterval(id: number | undefined): void;
declare function queueMicrotask(f: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function atob(text: string): string;
declare function btoa(text: string): string;

declare var crypto: {
  randomUUID(): string;
  getRandomValues<T extends ArrayBufferView>(target: T): T;
  readonly subtle: {
    digest(algorithm: 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512' | { name: string }, data: ArrayBuffer | ArrayBufferView): Promise<ArrayBuffer>;
  };
};
