// URL and URLSearchParams for definition code. The value is a function that takes the host's side (sys) and
// returns both classes. The host parses and resolves; this is only the interface.
(function (sys) {
  'use strict';

  const decode = (text) => {
    try {
      return decodeURIComponent(text.replace(/\+/g, ' '));
    } catch {
      return text;
    }
  };
  const encode = (text) =>
    encodeURIComponent(text).replace(/%20/g, '+').replace(/[!'()~]/g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase());

  class URLSearchParams {
    #pairs = [];
    #changed;

    constructor(init = '', changed = undefined) {
      this.#changed = changed;
      if (init !== null && typeof init === 'object') {
        const pairs = typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init);
        for (const [name, value] of pairs) this.#pairs.push([String(name), String(value)]);
      } else {
        this.#parse(String(init));
      }
    }
    #parse(text) {
      this.#pairs = text
        .replace(/^\?/, '')
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
    #parts;
    #params;

    constructor(url, base) {
      this.#parts = sys.parseURL(String(url), base === undefined ? '' : String(base));
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
    // Sets one part and parses the whole again; a value that would make the URL invalid changes nothing.
    #set(name, value) {
      const parts = { ...this.#parts, [name]: String(value) };
      try {
        this.#parts = sys.parseURL(URL.#text(parts), '');
        if (name === 'search') this.#params = undefined;
      } catch {
        // as browsers do
      }
    }
    static #text(p) {
      const user = p.username === '' ? '' : p.username + (p.password === '' ? '' : ':' + p.password) + '@';
      const port = p.port === '' ? '' : ':' + p.port;
      const authority = p.opaque ? '' : '//' + user + p.hostname + port;
      return p.protocol + authority + p.pathname + p.search + p.hash;
    }
    get href() {
      return URL.#text(this.#parts);
    }
    set href(v) {
      this.#parts = sys.parseURL(String(v), '');
      this.#params = undefined;
    }
    get origin() {
      return this.#parts.opaque || this.#parts.hostname === '' ? 'null' : `${this.protocol}//${this.host}`;
    }
    get protocol() {
      return this.#parts.protocol;
    }
    set protocol(v) {
      this.#set('protocol', String(v).replace(/:?$/, ':'));
    }
    get username() {
      return this.#parts.username;
    }
    set username(v) {
      this.#set('username', encodeURIComponent(v));
    }
    get password() {
      return this.#parts.password;
    }
    set password(v) {
      this.#set('password', encodeURIComponent(v));
    }
    get host() {
      return this.hostname + (this.port === '' ? '' : ':' + this.port);
    }
    set host(v) {
      const [, hostname, port] = /^(.*?)(?::(\d*))?$/.exec(String(v));
      this.#set('hostname', hostname);
      if (port !== undefined) this.#set('port', port);
    }
    get hostname() {
      return this.#parts.hostname;
    }
    set hostname(v) {
      this.#set('hostname', v);
    }
    get port() {
      return this.#parts.port;
    }
    set port(v) {
      this.#set('port', v);
    }
    get pathname() {
      return this.#parts.pathname;
    }
    set pathname(v) {
      this.#set('pathname', encodeURI(String(v)).replace(/[?#]/g, encodeURIComponent).replace(/^(?!\/)/, '/'));
    }
    get search() {
      return this.#parts.search;
    }
    set search(v) {
      const text = String(v).replace(/^\?/, '');
      this.#set('search', text === '' ? '' : '?' + text.replace(/#/g, '%23'));
    }
    get hash() {
      return this.#parts.hash;
    }
    set hash(v) {
      const text = String(v).replace(/^#/, '');
      this.#set('hash', text === '' ? '' : '#' + text);
    }
    get searchParams() {
      this.#params ??= new URLSearchParams(this.search, (text) => {
        const params = this.#params;
        this.search = text;
        this.#params = params;
      });
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
