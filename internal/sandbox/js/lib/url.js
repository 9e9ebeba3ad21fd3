// URL and URLSearchParams for definition code. The value is a function that takes the host's side (sys) and
// returns both classes. The host parses, resolves and changes URLs; this is only the interface.
(function (sys) {
  'use strict';

  const decode = (text) => (/[+%]/.test(text) ? sys.decodeForm(text) : text);
  const encode = (text) =>
    encodeURIComponent(text.toWellFormed()).replace(/%20/g, '+').replace(/[!'()~]/g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase());

  let read; // read(params, text) makes URLSearchParams read another text
  let bind; // bind(params, changed) has changed called with the text of URLSearchParams after each change

  class URLSearchParams {
    #pairs = [];
    #changed;

    static {
      read = (params, text) => params.#parse(text);
      bind = (params, changed) => (params.#changed = changed);
    }
    constructor(init = '') {
      if (init !== null && typeof init === 'object') {
        const pairs = typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init);
        for (const pair of pairs) {
          const both = [...pair];
          if (both.length !== 2) throw new TypeError('URLSearchParams: give pairs of a name and a value');
          this.#pairs.push(both.map(String));
        }
      } else {
        this.#parse(String(init).replace(/^\?/, ''));
      }
    }
    #parse(text) {
      this.#pairs = text
        .split('&')
        .filter((part) => part !== '')
        .map((part) => {
          const at = part.indexOf('=');
          return at < 0 ? [decode(part), ''] : [decode(part.slice(0, at)), decode(part.slice(at + 1))];
        });
    }
    #touch() {
      this.#changed?.(this.toString());
    }
    get size() {
      return this.#pairs.length;
    }
    append(name, value) {
      this.#pairs.push([String(name), String(value)]);
      this.#touch();
    }
    delete(name, value) {
      this.#pairs = this.#pairs.filter(([n, v]) => n !== String(name) || (value !== undefined && v !== String(value)));
      this.#touch();
    }
    get(name) {
      return this.#pairs.find(([n]) => n === String(name))?.[1] ?? null;
    }
    getAll(name) {
      return this.#pairs.filter(([n]) => n === String(name)).map(([, v]) => v);
    }
    has(name, value) {
      return this.#pairs.some(([n, v]) => n === String(name) && (value === undefined || v === String(value)));
    }
    set(name, value) {
      const at = this.#pairs.findIndex(([n]) => n === String(name));
      if (at < 0) {
        this.append(name, value);
        return;
      }
      this.#pairs = this.#pairs.filter(([n], i) => i <= at || n !== String(name));
      this.#pairs[at][1] = String(value);
      this.#touch();
    }
    sort() {
      this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      this.#touch();
    }
    forEach(f, self) {
      for (const [name, value] of this.#pairs) f.call(self, value, name, this);
    }
    *entries() {
      for (const [name, value] of this.#pairs) yield [name, value];
    }
    *keys() {
      for (const [name] of this.#pairs) yield name;
    }
    *values() {
      for (const [, value] of this.#pairs) yield value;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toString() {
      return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
    }
  }

  class URL {
    #parts; // what sys.parseURL returns
    #params;

    constructor(url, base) {
      this.#parts = sys.parseURL(String(url), base === undefined ? undefined : String(base));
    }
    static canParse(url, base) {
      return URL.parse(url, base) !== null;
    }
    static parse(url, base) {
      try {
        return new URL(url, base);
      } catch {
        return null;
      }
    }
    // Takes other parts. The object in searchParams stays the same.
    #take(parts) {
      this.#parts = parts;
      if (this.#params !== undefined) read(this.#params, parts.search.slice(1));
    }
    static {
      for (const name of ['protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        Object.defineProperty(URL.prototype, name, {
          get() {
            return this.#parts[name];
          },
          set(v) {
            this.#take(sys.setURL(this.#parts.href, name, String(v)));
          },
          enumerable: true,
          configurable: true,
        });
      }
    }
    get href() {
      return this.#parts.href;
    }
    set href(v) {
      this.#take(sys.parseURL(String(v), undefined));
    }
    get origin() {
      return this.#parts.origin;
    }
    get searchParams() {
      if (this.#params === undefined) {
        this.#params = new URLSearchParams();
        read(this.#params, this.search.slice(1));
        bind(this.#params, (text) => (this.#parts = sys.setURL(this.href, 'search', text)));
      }
      return this.#params;
    }
    toString() {
      return this.href;
    }
    toJSON() {
      return this.href;
    }
  }

  return { URL, URLSearchParams };
});
