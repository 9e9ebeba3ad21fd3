// AbortController, AbortSignal and DOMException for definition code, limited to what streams and runs need: without
// EventTarget, because there is no page through which its events could propagate.
(function () {
  'use strict';
  const define = (name, value) => {
    if (!(name in globalThis)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    }
  };

  define(
    'DOMException',
    class DOMException extends Error {
      constructor(message = '', name = 'Error') {
        super(message);
        Object.defineProperty(this, 'name', { value: String(name), configurable: true });
      }
      // The numbers that some names have for old code. The other names have 0.
      get code() {
        return { AbortError: 20, TimeoutError: 23, QuotaExceededError: 22, DataCloneError: 25, NotSupportedError: 9, InvalidCharacterError: 5 }[this.name] ?? 0;
      }
    },
  );

  const make = Symbol('make');
  const onabort = Symbol('onabort'); // stands for the function in onabort, among the listeners
  class AbortSignal {
    #aborted = false;
    #reason = undefined;
    // Listeners in the order in which they are called. onabort has its place among them.
    #listeners = new Set();
    #onabort = null;
    // The signals of AbortSignal.any that follow this one, and those that this one follows.
    #followers = new Set();
    #sources = new Set();
    constructor(key) {
      if (key !== make) throw new TypeError('an AbortSignal comes from an AbortController');
    }
    static create() {
      const signal = new AbortSignal(make);
      return [signal, (reason) => signal.#abort(reason)];
    }
    static abort(reason) {
      const [signal, abort] = create();
      abort(reason);
      return signal;
    }
    static timeout(ms) {
      const [signal, abort] = create();
      setTimeout(() => abort(new DOMException('the time is up', 'TimeoutError')), ms);
      return signal;
    }
    static any(signals) {
      const all = [...signals];
      const [signal, abort] = create();
      const first = all.find((s) => s.aborted);
      if (first !== undefined) abort(first.reason);
      else {
        for (const s of all) {
          s.#followers.add(signal);
          signal.#sources.add(s);
        }
      }
      return signal;
    }
    #abort(reason = new DOMException('it was aborted', 'AbortError')) {
      if (this.#aborted) return;
      // All are aborted before the first listener is called.
      const signals = new Set([this]);
      for (const s of signals) {
        s.#aborted = true;
        s.#reason = reason;
        for (const source of s.#sources) source.#followers.delete(s);
        for (const follower of s.#followers) signals.add(follower);
        s.#followers.clear();
      }
      for (const s of signals) s.#tell();
    }
    #tell() {
      const event = Object.freeze({ type: 'abort', target: this });
      for (const listener of [...this.#listeners]) {
        if (!this.#listeners.has(listener)) continue; // another has removed it
        const f = listener === onabort ? this.#onabort : listener;
        try {
          if (typeof f === 'function') f.call(this, event);
          else f?.handleEvent?.(event);
        } catch (e) {
          console.error('a listener of an AbortSignal failed: ' + (e?.stack ?? e));
        }
      }
      this.#listeners.clear();
    }
    get onabort() {
      return this.#onabort;
    }
    set onabort(f) {
      this.#onabort = typeof f === 'function' ? f : null;
      if (this.#onabort === null) this.#listeners.delete(onabort);
      else if (!this.#aborted) this.#listeners.add(onabort);
    }
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    addEventListener(type, f) {
      if (type === 'abort' && f && !this.#aborted) this.#listeners.add(f);
    }
    removeEventListener(type, f) {
      if (type === 'abort') this.#listeners.delete(f);
    }
  }
  const create = AbortSignal.create;
  delete AbortSignal.create;

  define('AbortSignal', AbortSignal);
  define(
    'AbortController',
    class AbortController {
      #signal;
      #abort;
      constructor() {
        [this.#signal, this.#abort] = create();
      }
      get signal() {
        return this.#signal;
      }
      abort(reason) {
        this.#abort(reason);
      }
    },
  );
});
