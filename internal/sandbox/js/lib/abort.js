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
    },
  );

  const make = Symbol('make');
  class AbortSignal {
    #aborted = false;
    #reason = undefined;
    #listeners = new Map();
    onabort = null;
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
      const [signal, abort] = create();
      for (const s of signals) {
        if (s.aborted) {
          abort(s.reason);
          break;
        }
        s.addEventListener('abort', () => abort(s.reason), { once: true });
      }
      return signal;
    }
    #abort(reason = new DOMException('it was aborted', 'AbortError')) {
      if (this.#aborted) return;
      this.#aborted = true;
      this.#reason = reason;
      const event = Object.freeze({ type: 'abort', target: this });
      const listeners = [...this.#listeners.keys()];
      this.#listeners.clear();
      for (const f of [this.onabort, ...listeners]) {
        try {
          if (typeof f === 'function') f.call(this, event);
          else f?.handleEvent?.(event);
        } catch (e) {
          console.error('a listener of an AbortSignal failed: ' + (e?.stack ?? e));
        }
      }
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
      if (type === 'abort' && f && !this.#aborted) this.#listeners.set(f, true);
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
