// The globals of definition code, apart from those of the language and of abort.js, and from console. The value of this script is a
// function that takes the host's side (sys), and returns a function that returns what http.js makes.
(function (sys) {
  'use strict';
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });

  const isBuffer = (v) => v instanceof ArrayBuffer || (typeof SharedArrayBuffer === 'function' && v instanceof SharedArrayBuffer);
  const bytesOf = (input) => {
    if (input === undefined) return new Uint8Array(0);
    if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    return new Uint8Array(input);
  };

  define(
    'TextEncoder',
    class TextEncoder {
      get encoding() {
        return 'utf-8';
      }
      encode(text = '') {
        return sys.encodeText(String(text));
      }
      encodeInto(text, target) {
        let read = 0;
        let written = 0;
        for (const char of String(text)) {
          const bytes = sys.encodeText(char);
          if (written + bytes.length > target.length) break;
          target.set(bytes, written);
          written += bytes.length;
          read += char.length;
        }
        return { read, written };
      }
    },
  );

  define(
    'TextDecoder',
    class TextDecoder {
      #fatal;
      #keepBOM;
      #rest = new Uint8Array(0);
      #begun = false; // whether the text has begun: a byte order mark is left out at its beginning only
      constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
        if (!/^\s*(utf-?8|unicode-1-1-utf-8|(x-)?unicode(11|20)utf8)\s*$/i.test(label)) {
          throw new RangeError(`the encoding ${label} is not supported: only utf-8 is`);
        }
        this.#fatal = Boolean(fatal);
        this.#keepBOM = Boolean(ignoreBOM);
      }
      get encoding() {
        return 'utf-8';
      }
      get fatal() {
        return this.#fatal;
      }
      get ignoreBOM() {
        return this.#keepBOM;
      }
      decode(input, { stream = false } = {}) {
        if (input !== undefined && !ArrayBuffer.isView(input) && !isBuffer(input)) throw new TypeError('decode takes bytes: an ArrayBuffer or a view of one');
        let bytes = bytesOf(input);
        if (this.#rest.length > 0) {
          const joined = new Uint8Array(this.#rest.length + bytes.length);
          joined.set(this.#rest);
          joined.set(bytes, this.#rest.length);
          bytes = joined;
        }
        const begun = this.#begun;
        this.#rest = new Uint8Array(0); // also if the bytes are not UTF-8
        this.#begun = false;
        const [text, used] = sys.decodeText(bytes, this.#fatal, stream);
        this.#rest = bytes.slice(used);
        this.#begun = Boolean(stream) && (begun || text !== '');
        return !this.#keepBOM && !begun && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
      }
    },
  );

  define('queueMicrotask', (f) => {
    if (typeof f !== 'function') throw new TypeError('queueMicrotask takes a function');
    Promise.resolve().then(() => f());
  });
  define('structuredClone', (value) => sys.clone(value));
  define('atob', (text) => sys.atob(String(text)));
  define('btoa', (text) => sys.btoa(String(text)));
  define('setTimeout', (f, ms = 0, ...args) => sys.setTimer(f, Number(ms), false, args));
  define('setInterval', (f, ms = 0, ...args) => sys.setTimer(f, Number(ms), true, args));
  define('clearTimeout', (id) => sys.clearTimer(id));
  define('clearInterval', (id) => sys.clearTimer(id));
  define(
    'crypto',
    Object.freeze({
      randomUUID: () => sys.randomUUID(),
      getRandomValues(target) {
        bytesOf(target).set(sys.randomBytes(target.byteLength));
        return target;
      },
      subtle: Object.freeze({
        async digest(algorithm, data) {
          const name = String(algorithm?.name ?? algorithm).toUpperCase();
          if (!['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'].includes(name)) {
            throw Object.assign(new Error(`${name} is not available: use SHA-1, SHA-256, SHA-384 or SHA-512`), { name: 'NotSupportedError' });
          }
          if (!(data instanceof ArrayBuffer) && !ArrayBuffer.isView(data)) throw new TypeError('digest takes bytes: encode a text with new TextEncoder().encode(text)');
          return (await sys.digest(name, bytesOf(data).slice())).buffer;
        },
      }),
    }),
  );

  // Created at first use: most code needs neither.
  for (const name of ['URL', 'URLSearchParams']) {
    Object.defineProperty(globalThis, name, {
      configurable: true,
      enumerable: false,
      get() {
        const classes = sys.urlClasses();
        define('URL', classes.URL);
        define('URLSearchParams', classes.URLSearchParams);
        return classes[name];
      },
      set(value) {
        define(name, value);
      },
    });
  }

  let httpParts;
  const http = () => (httpParts ??= sys.httpParts(sys));
  for (const name of ['Headers', 'Request', 'Response', 'ReadableStream']) {
    Object.defineProperty(globalThis, name, {
      configurable: true,
      enumerable: false,
      get() {
        const { classes } = http();
        define(name, classes[name]);
        return classes[name];
      },
      set(value) {
        define(name, value);
      },
    });
  }

  return http;
});
