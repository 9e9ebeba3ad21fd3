// Encodes values as package value describes them: with the same tags, limits and errors.

const TAG = { undefined: 0, null: 1, false: 2, true: 3, int: 4, float: 5, string: 6, bigint: 7, date: 8, bytes: 9, array: 10, object: 11, map: 12, set: 13, func: 14 };
const MAX_DEPTH = 500;
const MAX_NODES = 2_000_000;
const MAX_BYTES = 32 << 20;
const MAX_BIGINT_BYTES = 64 << 10;
const MAX_SAFE = 2 ** 53 - 1;
const EXACT = 2 ** 51; // up to here zigzag and varint work on numbers

// The error for a value that cannot cross. Only errors of the harness have the mark.
class Refusal {
  #mark = true;
  constructor(reason) {
    this.reason = reason;
    this.path = '';
  }
  static is(e) {
    return typeof e === 'object' && e !== null && #mark in e;
  }
  get message() {
    return this.path === '' ? `this value cannot cross the sandbox: ${this.reason}` : `the value at ${this.path} cannot cross the sandbox: ${this.reason}`;
  }
}

// Writer appends to a buffer that grows. It leaves room for a frame's header in front, so that its content is sent
// without a copy.
const HEADER = 5;

class Writer {
  #buffer = new $Uint8Array(256);
  #view = undefined;
  #size = HEADER;

  // size returns the size of the content.
  get size() {
    return this.#size - HEADER;
  }
  room(n) {
    const need = this.#size + n;
    const have = typedLength(this.#buffer);
    if (need <= have) return;
    // Transferring frees the old buffer at once instead of at the next garbage collection.
    this.#buffer = new $Uint8Array(transfer(typedBuffer(this.#buffer), max(need, have + (have < 1 << 20 ? have : have >> 2))));
    this.#view = undefined;
  }
  byte(b) {
    if (this.#size === typedLength(this.#buffer)) this.room(1);
    this.#buffer[this.#size++] = b;
  }
  uint(n) {
    if (n >= EXACT) return this.bigUint($BigInt(n));
    while (n > 127) {
      this.byte((n % 128) + 128);
      n = floor(n / 128);
    }
    this.byte(n);
  }
  bigUint(n) {
    while (n > 127n) {
      this.byte(Number$(n & 127n) + 128);
      n >>= 7n;
    }
    this.byte(Number$(n));
  }
  int(n) {
    if (n >= EXACT || n <= -EXACT) {
      const b = $BigInt(n);
      return this.bigUint(n < 0 ? -2n * b - 1n : 2n * b);
    }
    this.uint(n < 0 ? -2 * n - 1 : 2 * n);
  }
  float(f) {
    this.room(8);
    this.#view ??= new $DataView(typedBuffer(this.#buffer));
    setFloat64(this.#view, this.#size, f);
    this.#size += 8;
  }
  raw(bytes) {
    const n = typedLength(bytes);
    this.room(n);
    bytesSet(this.#buffer, bytes, this.#size);
    this.#size += n;
  }
  span(bytes) {
    this.uint(typedLength(bytes));
    this.raw(bytes);
  }
  // text writes a length and UTF-8; a lone surrogate becomes U+FFFD.
  text(s) {
    if (s.length <= 42) {
      // At most 126 bytes: the length takes one.
      this.room(3 * s.length + 1);
      const { written } = encodeInto(s, bytesPart(this.#buffer, this.#size + 1));
      this.#buffer[this.#size] = written;
      this.#size += written + 1;
      return;
    }
    this.within(() => {
      for (let at = 0; at < s.length; ) {
        this.room(min(3 * (s.length - at), 1 << 16));
        const { read, written } = encodeInto(at === 0 ? s : slice(s, at), bytesPart(this.#buffer, this.#size));
        at += read;
        this.#size += written;
      }
    });
  }
  // within writes what write writes, preceded by its length. Lengths may be padded.
  within(write) {
    const at = this.#size;
    this.room(5);
    this.#size += 5;
    write();
    let n = this.#size - at - 5;
    for (let i = 0; i < 5; i++) {
      this.#buffer[at + i] = (n & 127) | (i < 4 ? 128 : 0);
      n >>>= 7;
    }
  }
  flag(b) {
    this.byte(b ? 1 : 0);
  }
  // done returns the content, frame the content with room for a header. Do not use the writer afterwards.
  done() {
    return bytesPart(this.#buffer, HEADER, this.#size);
  }
  frame() {
    return bytesPart(this.#buffer, 0, this.#size);
  }
  // free releases the buffer at once: it lies outside the heap, and the garbage collector may release it much later.
  free() {
    transfer(typedBuffer(this.#buffer), 0);
  }
}

const Number$ = Number;

// encodeTo appends a value. funcs, if any, receives the functions in it and assigns each a reference. Errors of
// getters, toJSON and proxies are passed on unchanged.
function encodeTo(w, value, funcs, first = '') {
  const e = { __proto__: null, w, funcs, nodes: 0, start: w.size, above: new $Set(), path: [], length: 0 };
  if (first !== '') {
    push(e.path, first);
    e.length = 1;
  }
  try {
    encodeValue(e, value, first === '' ? 0 : 1);
  } catch (thrown) {
    if (Refusal.is(thrown) && thrown.path === '') thrown.path = pathOf(e);
    throw thrown;
  }
}

function encode(value) {
  const w = new Writer();
  encodeTo(w, value);
  return w.done();
}

// encodeArgs appends a list of values as one array.
function encodeArgs(w, args, funcs) {
  w.byte(TAG.array);
  w.uint(args.length);
  for (let i = 0; i < args.length; i++) encodeTo(w, args[i], funcs, `[${i}]`);
}

function pathOf(e) {
  let out = '';
  const n = min(e.length, 12);
  for (let i = 0; i < n; i++) {
    const part = e.path[i];
    out += typeof part === 'number' ? `[${part}]` : part[0] === '[' && i === 0 ? part : `.${part}`;
  }
  if (e.length > 12) out += '…';
  return out.length > 300 ? slice(out, 0, 300) + '…' : out;
}

function encodeValue(e, v, depth) {
  if (depth > MAX_DEPTH) throw new Refusal(`it nests deeper than ${MAX_DEPTH} levels`);
  if (++e.nodes > MAX_NODES) throw new Refusal(`it holds more than ${MAX_NODES} values`);
  const { w } = e;
  if (w.size - e.start > MAX_BYTES) throw new Refusal(`it is larger than ${MAX_BYTES >> 20} MiB`);
  switch (typeof v) {
    case 'undefined':
      return w.byte(TAG.undefined);
    case 'boolean':
      return w.byte(v ? TAG.true : TAG.false);
    case 'number':
      if (isInteger(v) && v <= MAX_SAFE && v >= -MAX_SAFE && (v !== 0 || 1 / v > 0)) {
        w.byte(TAG.int);
        return w.int(v);
      }
      w.byte(TAG.float);
      return w.float(v);
    case 'string':
      if (v.length > MAX_BYTES) throw new Refusal(`a string larger than ${MAX_BYTES >> 20} MiB`);
      w.byte(TAG.string);
      return w.text(v);
    case 'bigint':
      return encodeBigInt(w, v);
    case 'symbol':
      throw new Refusal('a symbol');
    case 'function':
      if (e.funcs === undefined) throw new Refusal('a function');
      w.byte(TAG.func);
      return w.uint(e.funcs(v));
  }
  if (v === null) return w.byte(TAG.null);
  if (setHas(e.above, v)) throw new Refusal('it contains itself');
  setAdd(e.above, v);
  encodeObject(e, v, depth);
  setDelete(e.above, v);
}

function encodeBigInt(w, v) {
  const negative = v < 0n;
  const size = v < 0n ? -v : v;
  // Converting a huge one to text would take long, so its size is checked first.
  if (size >> $BigInt(8 * MAX_BIGINT_BYTES) > 0n) throw new Refusal(`a bigint of more than ${MAX_BIGINT_BYTES} bytes`);
  let digits = size === 0n ? '' : bigIntText(size, 16);
  if (digits.length % 2 === 1) digits = '0' + digits;
  w.byte(TAG.bigint);
  w.flag(negative);
  w.uint(digits.length / 2);
  for (let i = 0; i < digits.length; i += 2) w.byte((hexDigit(charCodeAt(digits, i)) << 4) | hexDigit(charCodeAt(digits, i + 1)));
}

const hexDigit = (c) => (c < 58 ? c - 48 : c - 87);

function encodeObject(e, v, depth) {
  const { w } = e;
  if (isProxy(v)) return encodePlain(e, v, depth);
  if (isArray(v)) return encodeArray(e, v, v.length, depth);
  const typed = typedName(v);
  if (typed !== undefined) {
    if (typed !== 'Uint8Array' && typed !== 'Uint8ClampedArray') return encodeArray(e, v, typedLength(v), depth);
    return encodeBytes(w, new $Uint8Array(typedBuffer(v), typedOffset(v), typedBytes(v)));
  }
  const proto = getPrototypeOf(v);
  // For most objects, the constructor of the prototype suggests the type at once. The tests below do not
  // trust it, so only a built-in object that pretends to be plain needs all tests.
  if (isNativeError(v)) {
    const said = infoOf(v);
    w.byte(TAG.object);
    w.uint(2);
    w.text('name');
    encodeValue(e, said.name, depth + 1);
    w.text('message');
    return encodeValue(e, said.message, depth + 1);
  }
  if (isKind.date(v)) {
    const ms = dateTime(v);
    if (ms !== ms) throw new Refusal('an invalid Date');
    w.byte(TAG.date);
    return w.int(ms);
  }
  if (isKind.map(v)) return encodeMembers(e, v, TAG.map, mapEach, mapSize(v), depth);
  if (isKind.set(v)) return encodeMembers(e, v, TAG.set, setEach, setSize(v), depth);
  if (isKind.anyBuffer(v)) return encodeBytes(w, new $Uint8Array(v));
  if (isKind.dataView(v)) throw new Refusal('a DataView: send its buffer');
  if (isKind.boxed(v)) {
    if (isKind.symbolObject(v)) throw new Refusal('a symbol');
    return encodeValue(e, unboxed(v), depth + 1);
  }
  if (isPromise(v)) throw new Refusal('a promise: await it first');
  if (isKind.arguments(v)) return encodeArray(e, v, v.length, depth);
  if (isKind.empty(v)) throw new Refusal('an object that holds no data of its own (an iterator, a generator or a weak reference)');
  return encodePlain(e, v, depth, proto);
}

function unboxed(v) {
  for (let i = 0; i < boxValues.length; i++) {
    try {
      return boxValues[i](v);
    } catch {
      // one of the others
    }
  }
  throw new Refusal('a boxed value of no known kind');
}

function encodeBytes(w, bytes) {
  if (typedLength(bytes) > MAX_BYTES) throw new Refusal(`bytes larger than ${MAX_BYTES >> 20} MiB`);
  w.byte(TAG.bytes);
  w.span(bytes);
}

function encodeArray(e, v, n, depth) {
  if (typeof n !== 'number' || !isInteger(n) || n < 0) throw new Refusal('an array of no length');
  if (n > MAX_NODES) throw new Refusal(`it holds more than ${MAX_NODES} values`);
  e.w.byte(TAG.array);
  e.w.uint(n);
  const at = e.length++;
  for (let i = 0; i < n; i++) {
    e.path[at] = i;
    encodeValue(e, v[i], depth + 1);
  }
  e.length = at;
}

function encodeMembers(e, v, tag, each, n, depth) {
  const members = [];
  each(v, (value, key) => {
    if (tag === TAG.map) push(members, key);
    push(members, value);
  });
  e.w.byte(tag);
  e.w.uint(n);
  for (let i = 0; i < members.length; i++) encodeValue(e, members[i], depth + 1);
}

// encodePlain encodes what has no class of its own as JSON would.
function encodePlain(e, v, depth) {
  const { toJSON } = v;
  if (typeof toJSON === 'function') {
    const r = apply(toJSON, v, []);
    if (r !== v) return encodeValue(e, r, depth + 1);
  }
  if (isArray(v)) return encodeArray(e, v, v.length, depth);
  const names = objectKeys(v);
  const { w } = e;
  w.byte(TAG.object);
  w.uint(names.length);
  const at = e.length++;
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    e.path[at] = name;
    w.text(name);
    encodeValue(e, v[name], depth + 1);
  }
  e.length = at;
}

// Reader reads what the manager sent. The manager is trusted, so invalid input is simply an error.
class Reader {
  #bytes;
  #view;
  #at = 0;
  constructor(bytes) {
    this.#bytes = bytes;
    this.#view = new $DataView(typedBuffer(bytes), typedOffset(bytes), typedBytes(bytes));
  }
  get left() {
    return typedLength(this.#bytes) - this.#at;
  }
  byte() {
    if (this.left < 1) throw new $Error('a message ends early');
    return this.#bytes[this.#at++];
  }
  flag() {
    return this.byte() === 1;
  }
  uint() {
    let n = 0;
    let scale = 1;
    for (let i = 0; i < 7; i++) {
      const b = this.byte();
      n += (b & 127) * scale;
      if (b < 128) return n;
      scale *= 128;
    }
    return Number$(this.#bigRest(n));
  }
  #bigRest(low) {
    let n = $BigInt(low);
    for (let shift = 49n; ; shift += 7n) {
      const b = this.byte();
      n |= $BigInt(b & 127) << shift;
      if (b < 128) return n;
    }
  }
  int() {
    let n = 0;
    let scale = 1;
    for (let i = 0; i < 7; i++) {
      const b = this.byte();
      n += (b & 127) * scale;
      if (b < 128) return n % 2 === 1 ? -(n + 1) / 2 : n / 2;
      scale *= 128;
    }
    const big = this.#bigRest(n);
    return Number$(big & 1n ? -((big + 1n) / 2n) : big / 2n);
  }
  float() {
    const f = getFloat64(this.#view, this.#at);
    this.#at += 8;
    return f;
  }
  // span returns bytes that share the message's buffer.
  span() {
    const n = this.uint();
    if (n > this.left) throw new $Error('a message ends early');
    this.#at += n;
    return bytesPart(this.#bytes, this.#at - n, this.#at);
  }
  text() {
    const bytes = this.span();
    const n = typedLength(bytes);
    if (n < 24) {
      let s = '';
      for (let i = 0; i < n; i++) {
        const c = bytes[i];
        if (c > 127) return decodeUtf8(bytes);
        s += fromCharCode(c);
      }
      return s;
    }
    return decodeUtf8(bytes);
  }
}

function decode(bytes) {
  return typedLength(bytes) === 0 ? undefined : decodeValue(new Reader(bytes));
}

// decodeArgs decodes an encoded array to a list of the harness.
function decodeArgs(bytes) {
  return typedLength(bytes) === 0 ? [] : decodeValue(new Reader(bytes));
}

function decodeValue(r) {
  const tag = r.byte();
  switch (tag) {
    case TAG.undefined:
      return undefined;
    case TAG.null:
      return null;
    case TAG.false:
      return false;
    case TAG.true:
      return true;
    case TAG.int:
      return r.int() + 0;
    case TAG.float:
      return r.float();
    case TAG.string:
      return r.text();
    case TAG.bigint:
      return decodeBigInt(r);
    case TAG.date:
      return new $Date(r.int());
    case TAG.bytes:
      return bytesCopy(r.span());
    case TAG.array: {
      const n = r.uint();
      const out = [];
      for (let i = 0; i < n; i++) put(out, i, decodeValue(r));
      return out;
    }
    case TAG.object: {
      const n = r.uint();
      const out = {};
      for (let i = 0; i < n; i++) put(out, r.text(), decodeValue(r));
      return out;
    }
    case TAG.map: {
      const n = r.uint();
      const out = new $Map();
      for (let i = 0; i < n; i++) mapSet(out, decodeValue(r), decodeValue(r));
      return out;
    }
    case TAG.set: {
      const n = r.uint();
      const out = new $Set();
      for (let i = 0; i < n; i++) setAdd(out, decodeValue(r));
      return out;
    }
  }
  throw new $Error(`a value of unknown tag ${tag}`);
}

function decodeBigInt(r) {
  const negative = r.flag();
  const bytes = r.span();
  const n = typedLength(bytes);
  let text = '';
  for (let i = 0; i < n; i++) text += padStart(bigIntText($BigInt(bytes[i]), 16), 2, '0');
  const size = n === 0 ? 0n : $BigInt('0x' + text);
  return negative ? -size : size;
}
