// The main program of this process: remove what user code must not find, send Ready, carry out one Open.

// The globals of the language itself; all others are removed, also WebAssembly and whatever waits outside of
// the event loop.
const LANGUAGE = new $Set();
for (const name of (
  'AggregateError Array ArrayBuffer AsyncDisposableStack Atomics BigInt BigInt64Array BigUint64Array Boolean DataView Date DisposableStack Error EvalError ' +
  'FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array Intl Iterator JSON Map Math NaN Number ' +
  'Object Promise Proxy RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol SyntaxError Temporal TypeError URIError ' +
  'Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval ' +
  'globalThis isFinite isNaN parseFloat parseInt undefined unescape'
).split(' ')) {
  setAdd(LANGUAGE, name);
}

function clearGlobals() {
  setPrototypeOf(globalThis, objectProto);
  // Some hide others of the same name, which become visible when the first are removed.
  for (let found = true; found; ) {
    found = false;
    const names = ownKeys(globalThis);
    for (let i = 0; i < names.length; i++) {
      if (setHas(LANGUAGE, names[i])) continue;
      if (!Reflect.deleteProperty(globalThis, names[i])) throw new $Error(`the global ${$String(names[i])} cannot be removed`);
      found = true;
    }
  }
  delete Atomics.waitAsync;
  $Error.stackTraceLimit = 50;
}

// durationText formats milliseconds in the notation of the manager's limits.
function durationText(ms) {
  const text = (n, unit) => `${n}${unit}`;
  if (ms < 1000) return text(ms, 'ms');
  const hours = floor(ms / 3_600_000);
  const minutes = floor((ms % 3_600_000) / 60_000);
  const seconds = text((ms % 60_000) / 1000, 's');
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}

function parseOpen(content) {
  const kind = content[0];
  const wallView = new $DataView(typedBuffer(content), typedOffset(content), typedBytes(content));
  const wall = Number$(wallView.getBigUint64(9)) / 1e6;
  const r = new Reader(bytesPart(content, 17));
  const open = { __proto__: null, kind, wall, main: r.text(), fn: r.text(), args: r.span(), bindings: [], statics: undefined, definition: '' };
  const modules = r.uint();
  for (let i = 0; i < modules; i++) {
    r.byte();
    const name = r.text();
    const source = r.text();
    if (name === 'skein:definition') open.definition = source;
    else if (startsWith(name, 'skein:')) mapSet(bare, slice(name, 6), source);
    else mapSet(sources, name, source);
  }
  const bindings = r.uint();
  for (let i = 0; i < bindings; i++) push(open.bindings, { __proto__: null, func: r.flag(), specifier: r.text(), name: r.text(), value: r.span() });
  open.statics = r.span();
  return open;
}

const KIND_RUN = 1;

function serve() {
  let handle;
  receive((type, content) => {
    if (type === FRAME.reply) reply(content);
    else if (handle !== undefined) handle(type, content);
    else if (type === FRAME.open) {
      const open = parseOpen(content);
      handle = open.kind === KIND_RUN ? () => { throw new $Error(`frame type ${type} during a run`); } : undefined;
      if (handle === undefined) handle = isolate(open);
      else run(open);
    }
    settleSoon();
  }, (e) => host.stderr.writeSync(encodeText(`input ended: ${inspect(e)}\n`)));
}

core.setUnhandledPromiseRejectionHandler((_, reason) => {
  log('error', 'unhandled rejection: ' + inspect(reason));
  return true;
});

// Deno still uses the globals after this module has run; they can be removed only then.
later(() => {
  clearGlobals();
  serve();
  send(FRAME.ready);
});
