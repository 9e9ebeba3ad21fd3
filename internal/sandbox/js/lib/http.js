// Headers, Request, Response and ReadableStream for definition code, and the server of thread endpoints. The value is a
// function that takes the host's side (sys) and returns { classes, serve }.
(function (sys) {
  'use strict';

  const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

  // ---- Headers ----------------------------------------------------------------------------------------

  class Headers {
    #fields = new Map(); // name in lower case → list of values

    constructor(init) {
      if (init === undefined || init === null) return;
      const pairs = init instanceof Headers || typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init);
      for (const pair of pairs) {
        if (pair === null || typeof pair !== 'object' || [...pair].length !== 2) {
          throw new TypeError('Headers: give pairs of a name and a value');
        }
        const [name, value] = pair;
        this.append(name, value);
      }
    }
    static #name(name) {
      const text = String(name);
      if (!token.test(text)) throw new TypeError(`"${text}" is not the name of a header`);
      return text.toLowerCase();
    }
    static #value(value) {
      const text = String(value).replace(/^[\t\r\n ]+|[\t\r\n ]+$/g, '');
      for (let i = 0; i < text.length; i++) {
        const c = text.charCodeAt(i);
        if (c === 0 || c === 10 || c === 13 || c > 255) throw new TypeError('a header has a value with characters that do not belong there');
      }
      return text;
    }
    append(name, value) {
      const key = Headers.#name(name);
      const list = this.#fields.get(key) ?? [];
      list.push(Headers.#value(value));
      this.#fields.set(key, list);
    }
    set(name, value) {
      this.#fields.set(Headers.#name(name), [Headers.#value(value)]);
    }
    get(name) {
      return this.#fields.get(Headers.#name(name))?.join(', ') ?? null;
    }
    getSetCookie() {
      return [...(this.#fields.get('set-cookie') ?? [])];
    }
    has(name) {
      return this.#fields.has(Headers.#name(name));
    }
    delete(name) {
      this.#fields.delete(Headers.#name(name));
    }
    forEach(f, self) {
      for (const [name, value] of this) f.call(self, value, name, this);
    }
    *entries() {
      for (const name of [...this.#fields.keys()].sort()) {
        if (name !== 'set-cookie') yield [name, this.get(name)];
        else for (const cookie of this.getSetCookie()) yield [name, cookie]; // cookies may have commas: they are not joined
      }
    }
    *keys() {
      for (const [name] of this.entries()) yield name;
    }
    *values() {
      for (const [, value] of this.entries()) yield value;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
  }

  // ---- ReadableStream ---------------------------------------------------------------------------------

  const disturbed = new WeakSet(); // streams that were read from

  class ReadableStream {
    #queue = [];
    #waiting = []; // reads that wait for a chunk
    #state = 'readable';
    #closing = false;
    #error;
    #source;
    #controller;
    #ready;
    #pulling = false;
    #again = false;
    #reader = null;
    #closed; // settles the promise closed of the reader

    constructor(source = {}) {
      this.#source = source ?? {};
      const stream = this;
      this.#controller = {
        get desiredSize() {
          if (stream.#state === 'errored') return null;
          return stream.#state === 'closed' ? 0 : 1 - stream.#queue.length;
        },
        enqueue(chunk) {
          if (stream.#state !== 'readable' || stream.#closing) throw new TypeError('the stream takes no more chunks: it is closed');
          const read = stream.#waiting.shift();
          if (read === undefined) return void stream.#queue.push(chunk);
          read.resolve({ value: chunk, done: false });
          if (stream.#waiting.length > 0) stream.#pull();
        },
        close() {
          if (stream.#state !== 'readable' || stream.#closing) throw new TypeError('the stream is closed already');
          stream.#closing = true;
          stream.#finish();
        },
        error(reason) {
          stream.#fail(reason);
        },
      };
      this.#ready = Promise.resolve(this.#source.start?.(this.#controller));
      this.#ready.catch((reason) => this.#fail(reason));
    }
    // Creates a stream of the values of an iterable or an async iterable.
    static from(iterable) {
      const it = iterable[Symbol.asyncIterator]?.() ?? iterable[Symbol.iterator]();
      return new ReadableStream({
        async pull(controller) {
          const { value, done } = await it.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        async cancel(reason) {
          await it.return?.(reason);
        },
      });
    }
    #finish() {
      if (!this.#closing || this.#queue.length > 0) return;
      this.#state = 'closed';
      this.#closed?.resolve();
      for (const read of this.#waiting.splice(0)) read.resolve({ value: undefined, done: true });
    }
    #fail(reason) {
      if (this.#state !== 'readable') return;
      this.#state = 'errored';
      this.#error = reason;
      this.#queue = [];
      this.#closed?.reject(reason);
      for (const read of this.#waiting.splice(0)) read.reject(reason);
    }
    // Calls the source's pull while reads wait: once, and once more if meanwhile a chunk or another read made that necessary. So a
    // source that enqueues its chunks later, from elsewhere, is not called again and again.
    async #pull() {
      if (this.#pulling) {
        this.#again = true;
        return;
      }
      this.#pulling = true;
      try {
        await this.#ready;
        do {
          this.#again = false;
          if (this.#waiting.length === 0 || this.#state !== 'readable' || typeof this.#source.pull !== 'function') break;
          await this.#source.pull(this.#controller);
        } while (this.#again);
      } catch (reason) {
        this.#fail(reason);
      } finally {
        this.#pulling = false;
      }
    }
    #read() {
      disturbed.add(this);
      if (this.#state === 'errored') return Promise.reject(this.#error);
      if (this.#queue.length > 0) {
        const value = this.#queue.shift();
        this.#finish();
        return Promise.resolve({ value, done: false });
      }
      if (this.#state === 'closed') return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => {
        this.#waiting.push({ resolve, reject });
        this.#pull();
      });
    }
    async #cancel(reason) {
      disturbed.add(this);
      if (this.#state === 'errored') throw this.#error;
      if (this.#state === 'closed') return;
      this.#queue = [];
      this.#closing = true;
      this.#finish();
      await this.#source.cancel?.(reason);
    }
    get locked() {
      return this.#reader !== null;
    }
    getReader() {
      if (this.locked) throw new TypeError('the stream is being read already');
      const gone = () => new TypeError('the reader has let go of its stream');
      const held = () => {
        if (this.#reader !== reader) throw gone();
      };
      const closed = Promise.withResolvers();
      closed.promise.catch(() => {}); // the reads report it
      if (this.#state === 'closed') closed.resolve();
      if (this.#state === 'errored') closed.reject(this.#error);
      const reader = {
        closed: closed.promise,
        read: async () => (held(), this.#read()),
        cancel: async (reason) => (held(), this.#cancel(reason)),
        releaseLock: () => {
          if (this.#reader !== reader) return;
          this.#reader = null;
          closed.reject(gone());
          for (const read of this.#waiting.splice(0)) read.reject(gone());
        },
      };
      this.#reader = reader;
      this.#closed = closed;
      return reader;
    }
    cancel(reason) {
      if (this.locked) return Promise.reject(new TypeError('the stream is being read: cancel it by its reader'));
      return this.#cancel(reason);
    }
    async *values({ preventCancel = false } = {}) {
      const reader = this.getReader();
      let over = false;
      try {
        for (;;) {
          const { value, done } = await reader.read();
          if (done) {
            over = true;
            return;
          }
          yield value;
        }
      } catch (e) {
        over = true;
        throw e;
      } finally {
        if (!over && !preventCancel) await reader.cancel();
        reader.releaseLock();
      }
    }
    [Symbol.asyncIterator]() {
      return this.values();
    }
  }

  // ---- bodies -----------------------------------------------------------------------------------------

  const encode = (text) => sys.encodeText(text);
  const decode = (bytes) => {
    const [text] = sys.decodeText(bytes, false, false);
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  };

  const bytesOf = (chunk) => {
    if (typeof chunk === 'string') return encode(chunk);
    if (chunk instanceof Uint8Array) return chunk;
    if (ArrayBuffer.isView(chunk)) return new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    if (chunk instanceof ArrayBuffer) return new Uint8Array(chunk);
    throw new TypeError('a body is made of texts and bytes: encode what is something else');
  };

  // Returns the bytes or the stream of a body's initial value, and the content type that this value implies.
  function extract(body) {
    if (body === undefined || body === null) return { content: null };
    if (typeof body === 'string') return { content: encode(body), type: 'text/plain;charset=UTF-8' };
    if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { content: bytesOf(body).slice() };
    if (body instanceof ReadableStream) {
      if (body.locked || disturbed.has(body)) throw new TypeError('the stream is being read already, or was: it cannot be a body');
      return { content: body };
    }
    if (body instanceof URLSearchParams) {
      return { content: encode(body.toString()), type: 'application/x-www-form-urlencoded;charset=UTF-8' };
    }
    if (typeof body === 'object') {
      if (typeof body[Symbol.asyncIterator] === 'function' || typeof body[Symbol.iterator] === 'function') {
        return { content: ReadableStream.from(body) };
      }
      return { content: encode(JSON.stringify(body)), type: 'application/json' };
    }
    return { content: encode(String(body)), type: 'text/plain;charset=UTF-8' };
  }

  class Body {
    #content; // null, bytes or a stream
    #stream; // of bytes, created at first use
    #used = false;

    _take(body, headers) {
      const { content, type } = extract(body);
      this.#content = content;
      if (type !== undefined && !headers.has('content-type')) headers.set('content-type', type);
    }
    // The content for the sender: null, bytes or a stream.
    _give() {
      if (this.bodyUsed) throw new TypeError('the body has been read already');
      this.#used = this.#content !== null;
      return this.#stream ?? this.#content;
    }
    _copy() {
      if (this.bodyUsed) throw new TypeError('the body has been read already');
      if (this.#content instanceof ReadableStream || this.#stream !== undefined) {
        throw new TypeError('a streamed body cannot be cloned: read it once, and make both of what it held');
      }
      return this.#content;
    }
    get bodyUsed() {
      const stream = this.#content instanceof ReadableStream ? this.#content : this.#stream;
      return this.#used || (stream !== undefined && disturbed.has(stream));
    }
    get body() {
      if (this.#content === null) return null;
      if (this.#content instanceof ReadableStream) return (this.#stream = this.#content);
      // In pieces, so that it is read incrementally.
      const bytes = this.#content;
      this.#stream ??= ReadableStream.from(
        (function* () {
          for (let at = 0; at < bytes.length; at += 65536) yield bytes.slice(at, at + 65536);
        })(),
      );
      return this.#stream;
    }
    async bytes() {
      const content = this._give();
      if (content === null) return new Uint8Array(0);
      if (content instanceof Uint8Array) return content.slice();
      const parts = [];
      let length = 0;
      for await (const chunk of content) {
        const part = bytesOf(chunk);
        parts.push(part);
        length += part.length;
      }
      const all = new Uint8Array(length);
      let at = 0;
      for (const part of parts) {
        all.set(part, at);
        at += part.length;
      }
      return all;
    }
    async arrayBuffer() {
      return (await this.bytes()).buffer;
    }
    async text() {
      return decode(await this.bytes());
    }
    async json() {
      const text = await this.text();
      try {
        return JSON.parse(text);
      } catch (e) {
        throw new SyntaxError(text === '' ? 'the body is empty, not JSON' : 'the body is not JSON: ' + e.message);
      }
    }
    async formData() {
      throw new TypeError('forms are not taken apart here: read text() with new URLSearchParams, or bytes()');
    }
    async blob() {
      throw new TypeError('there are no blobs here: read bytes()');
    }
  }

  // ---- Request and Response ---------------------------------------------------------------------------

  class Request extends Body {
    #method;
    #url;
    #headers;

    constructor(input, init = {}) {
      super();
      const from = input instanceof Request ? input : undefined;
      this.#method = String(init.method ?? from?.method ?? 'GET').toUpperCase();
      this.#url = from?.url ?? new URL(String(input)).href;
      this.#headers = new Headers(init.headers ?? from?.headers);
      const body = init.body ?? (from === undefined ? undefined : from._give());
      if (body !== undefined && body !== null && (this.#method === 'GET' || this.#method === 'HEAD')) {
        throw new TypeError(`a request with ${this.#method} has no body`);
      }
      this._take(body, this.#headers);
    }
    get method() {
      return this.#method;
    }
    get url() {
      return this.#url;
    }
    get headers() {
      return this.#headers;
    }
    clone() {
      const copy = new Request(this.#url, { method: this.#method, headers: this.#headers, body: this._copy() ?? undefined });
      if (Object.hasOwn(this, 'user')) Object.defineProperty(copy, 'user', { value: this.user, enumerable: true });
      return copy;
    }
  }

  const emptyStatuses = new Set([204, 205, 304]);

  class Response extends Body {
    #status;
    #statusText;
    #headers;

    constructor(body = null, init = {}) {
      super();
      init ??= {};
      const status = init.status === undefined ? 200 : Number(init.status);
      if (!Number.isInteger(status) || status < 200 || status > 599) {
        throw new RangeError(`${init.status} is not the status of an answer: give a whole number from 200 to 599`);
      }
      if (body !== null && body !== undefined && emptyStatuses.has(status)) {
        throw new TypeError(`an answer with status ${status} has no body`);
      }
      this.#status = status;
      this.#statusText = String(init.statusText ?? '');
      this.#headers = new Headers(init.headers);
      this._take(body, this.#headers);
    }
    static json(value, init = {}) {
      const text = JSON.stringify(value);
      if (text === undefined) throw new TypeError('the value cannot be written as JSON');
      const response = new Response(text, init);
      if (!new Headers(init?.headers).has('content-type')) response.headers.set('content-type', 'application/json');
      return response;
    }
    static redirect(url, status = 302) {
      if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`${status} is not the status of a redirection`);
      return new Response(null, { status, headers: { location: String(url) } });
    }
    get status() {
      return this.#status;
    }
    get ok() {
      return this.#status < 300;
    }
    get statusText() {
      return this.#statusText;
    }
    get headers() {
      return this.#headers;
    }
    get type() {
      return 'default';
    }
    clone() {
      const content = this._copy();
      return new Response(content, { status: this.#status, statusText: this.#statusText, headers: this.#headers });
    }
  }

  // ---- serving ----------------------------------------------------------------------------------------

  function handlerOf(definition, method) {
    const own = definition[method] ?? (method === 'HEAD' ? definition.GET : undefined);
    const handler = own ?? definition.execute ?? definition.handler;
    if (typeof handler === 'function') return handler;
    throw new TypeError(
      `the default export has no function for ${method}: export default defineThreadEndpoint(async (request, state, params) => new Response('…'))`,
    );
  }

  // Converts what a handler returns instead of a Response: nothing, a text, bytes, or a value that becomes JSON.
  function responseOf(answer) {
    if (answer instanceof Response) return answer;
    if (answer === undefined || answer === null) return new Response(null, { status: 204 });
    if (typeof answer === 'string' || answer instanceof ArrayBuffer || ArrayBuffer.isView(answer)) return new Response(answer);
    return Response.json(answer);
  }

  // Calls a definition's handler and returns { status, headers, body }. A streamed body is sent piece by piece, each
  // after the one before was accepted; the returned body is empty then.
  async function serve(definition, call, state, send) {
    const bodyless = call.method === 'GET' || call.method === 'HEAD';
    const request = new Request(call.url, { method: call.method, headers: call.headers, body: bodyless ? undefined : call.body });
    Object.defineProperty(request, 'user', { value: Object.freeze({ name: call.user }), enumerable: true });
    const handler = handlerOf(definition, call.method);
    const response = responseOf(await handler.call(definition, request, state, { ...call.params }));
    const head = { status: response.status, headers: [...response.headers] };
    const content = response._give();
    if (!(content instanceof ReadableStream)) return { ...head, body: content };
    if (call.method === 'HEAD') {
      await content.cancel();
      return { ...head, body: null };
    }
    const reader = content.getReader();
    try {
      await send('endpoint.head', [head]);
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return null;
        const bytes = bytesOf(value);
        for (let at = 0; at < bytes.length; at += 1 << 20) await send('endpoint.chunk', [bytes.slice(at, at + (1 << 20))]);
      }
    } catch (e) {
      await reader.cancel(e).catch(() => {}); // lets the source release its resources; e is the error to report
      throw e;
    }
  }

  return { classes: { Headers, Request, Response, ReadableStream }, serve };
});
