// What runs and isolates have in common: the console, calls of the host, modules, and detecting that nothing can
// happen any more.

const MAX_CALLS = 1000;
const MAX_LOGS = 1000;
const MAX_LOG_LENGTH = 1 << 20;

let started = false;
function start() {
  if (started) return;
  started = true;
  send(FRAME.started);
}

// ---- the console ------------------------------------------------------------------------------------------

const logs = { __proto__: null, lines: 0, length: 0, most: MAX_LOGS, mostLength: MAX_LOG_LENGTH, invocation: () => '' };

function log(level, message) {
  if (logs.lines > logs.most || logs.length > logs.mostLength) return;
  logs.lines++;
  logs.length += message.length;
  if (logs.lines > logs.most || logs.length > logs.mostLength) {
    level = 'warn';
    message = "the console's limit is reached: what comes after is dropped";
  }
  const w = new Writer();
  w.text(logs.invocation());
  w.text(level);
  w.int(now() * 1000);
  w.text(cut(message, 64000));
  send(FRAME.log, w);
}

// format joins the arguments as consoles do, including the usual placeholders in a first text.
function format(args) {
  let out = '';
  let k = 0;
  if (args.length > 1 && typeof args[0] === 'string' && indexOf(args[0], '%') >= 0) {
    const text = args[0];
    k = 1;
    for (let i = 0; i < text.length; i++) {
      const verb = text[i + 1];
      if (text[i] !== '%' || verb === undefined) out += text[i];
      else if (verb === '%') {
        out += '%';
        i++;
      } else if (indexOf('sdifjoOc', verb) >= 0 && k < args.length) {
        if (verb !== 'c') out += inspect(args[k]);
        k++;
        i++;
      } else {
        out += '%' + verb;
        i++;
      }
    }
    if (k < args.length) out += ' ';
  }
  for (let first = k; k < args.length && out.length <= 64000; k++) {
    if (k > first) out += ' ';
    out += inspect(args[k]);
  }
  return out;
}

function installConsole() {
  const levels = { __proto__: null, debug: 'debug', trace: 'debug', log: 'info', info: 'info', dir: 'info', table: 'info', warn: 'warn', error: 'error' };
  const object = {};
  for (const name in levels) {
    // A method, so that it has a name and is not a constructor.
    hide(object, name, { [name](...args) { log(levels[name], format(args)); } }[name]);
  }
  hide(object, 'assert', {
    assert(ok, ...args) {
      if (ok) return;
      const text = format(args);
      log('error', text === '' ? 'assertion failed:' : `assertion failed: ${text}`);
    },
  }.assert);
  hide(globalThis, 'console', object);
}

// ---- calls of the host ------------------------------------------------------------------------------------

const calls = new $Map(); // under way, by id
let lastCall = 0;

// hostCall calls the host and returns a promise of the answer. hand, if any, receives the functions in the arguments;
// released is called once the call is over.
function hostCall(to, args, hand, released) {
  if (mapSize(calls) >= MAX_CALLS) throw new errorClasses.RangeError('too many calls of the host are under way: await some of the 1000 first');
  const call = { __proto__: null, site: new $Error(''), released, resolve: undefined, reject: undefined };
  const promise = new $Promise((resolve, reject) => {
    call.resolve = resolve;
    call.reject = reject;
  });
  const id = ++lastCall;
  const w = new Writer();
  w.uint(id);
  w.uint(to.func ?? 0);
  w.text(to.method ?? '');
  w.text(to.invocation ?? '');
  try {
    w.within(() => encodeArgs(w, args, hand));
  } catch (thrown) {
    released?.();
    if (Refusal.is(thrown)) rejectCall(call, 'TypeError', thrown.message);
    else call.reject(thrown);
    return promise;
  }
  if (!send(FRAME.hostCall, w)) {
    released?.();
    rejectCall(call, 'TypeError', tooLarge(w));
    return promise;
  }
  mapSet(calls, id, call);
  return promise;
}

// rejectCall rejects with an error whose stack is that of the call.
function rejectCall(call, name, message) {
  const e = call.site;
  const frames = framesOf(textOf(e, 'stack'));
  const proto = errorProtos[name];
  if (proto !== undefined) setPrototypeOf(e, proto);
  else hide(e, 'name', name);
  hide(e, 'message', message);
  hide(e, 'stack', `${name}: ${message}\n${frames}`);
  call.reject(e);
}

function reply(content) {
  const r = new Reader(content);
  const id = r.uint();
  const call = mapGet(calls, id);
  if (call === undefined) return;
  mapDelete(calls, id);
  if (r.flag()) call.resolve(decode(r.span()));
  else {
    const name = r.text();
    rejectCall(call, name, r.text());
  }
  call.released?.();
}

// ---- waiting ----------------------------------------------------------------------------------------------

// Tasks are promises that the harness waits for; each has a function stuck that abandons it.
const tasks = new $Set();
let timers = 0; // of definition code, under way
let importing = 0; // imports that are being linked

// wait calls ok or fail once the promise has settled, unless the task was dropped, and stuck when nothing can
// settle it any more.
function wait(promise, ok, fail, stuck) {
  const task = { __proto__: null, stuck };
  setAdd(tasks, task);
  const once = (f) => (v) => {
    if (setDelete(tasks, task)) f(v);
  };
  then(promise, once(ok), once(fail));
  settleSoon();
  return task;
}

const drop = (task) => setDelete(tasks, task);

let looking = 0;

// settleSoon checks whether the tasks are stuck once everything that can run has run: after two turns of the event loop,
// because an imported module may take one.
function settleSoon() {
  if (looking === 0) later(look);
  looking = 2;
}

function look() {
  if (--looking > 0) {
    later(look);
    return;
  }
  if (mapSize(calls) > 0 || timers > 0 || importing > 0 || setSize(tasks) === 0) return;
  const all = [];
  setEach(tasks, (task) => push(all, task));
  for (let i = 0; i < all.length; i++) if (setDelete(tasks, all[i])) all[i].stuck();
}

const STUCK = 'the code awaits a promise that nothing settles any more';

// ---- modules ----------------------------------------------------------------------------------------------

// The modules of this isolate. Nothing is ever downloaded.
const sources = new $Map(); // name → compiled source
const synthetic = new $Map(); // bare specifier → [name, value, name, value, …]
const loaded = new $Map(); // name of a source → module
const loadedBare = new $Map(); // bare specifier → module: code may have a module "zod" of its own beside the library
const EXTENSIONS = ['', '.ts', '.tsx', '.mts', '.js', '.mjs', '.jsx', '.json', '/index.ts', '/index.js'];
const OUTPUTS = ['.js', '.ts', '.mjs', '.mts', '.jsx', '.tsx'];
let failedSpecifier = '';

const dirOf = (name) => slice(name, 0, max(lastIndexOf(name, '/'), 0));

// join joins paths and resolves "." and ".." as far as possible.
function join(dir, path) {
  const text = dir === '' ? path : `${dir}/${path}`;
  const parts = [];
  for (let at = 0; at <= text.length; ) {
    let end = indexOf(text, '/', at);
    if (end < 0) end = text.length;
    const part = slice(text, at, end);
    at = end + 1;
    if (part === '' || part === '.') continue;
    if (part === '..' && parts.length > 0 && parts[parts.length - 1] !== '..') parts.length--;
    else push(parts, part);
  }
  let out = '';
  for (let i = 0; i < parts.length; i++) out += i === 0 ? parts[i] : '/' + parts[i];
  return out;
}

const isRelative = (s) => startsWith(s, './') || startsWith(s, '../') || s === '.' || s === '..';

// find returns the module that a module at base means by a specifier.
function find(base, specifier) {
  if (!isRelative(specifier)) {
    if (mapHas(synthetic, specifier) || mapHas(bare, specifier)) return loadBare(specifier);
    failedSpecifier = specifier;
    throw new errorClasses.ReferenceError(`cannot find module ${quoted(specifier)} (imported by ${base}): ${known()}`);
  }
  const name = join(dirOf(base), specifier);
  for (let i = 0; i < EXTENSIONS.length; i++) if (mapHas(sources, name + EXTENSIONS[i])) return load(name + EXTENSIONS[i]);
  for (let i = 0; i < OUTPUTS.length; i += 2) {
    if (!endsWith(name, OUTPUTS[i])) continue;
    const source = slice(name, 0, name.length - OUTPUTS[i].length) + OUTPUTS[i + 1];
    if (mapHas(sources, source)) return load(source);
  }
  failedSpecifier = specifier;
  throw new errorClasses.ReferenceError(`cannot find module ${quoted(specifier)} (imported by ${base}): give it among the modules`);
}

const bare = new $Map(); // bare specifier → compiled source, of the libraries

// known lists what could be imported instead.
function known() {
  const names = [];
  mapEach(synthetic, (_, name) => push(names, name));
  mapEach(bare, (_, name) => push(names, name));
  if (names.length === 0) return 'nothing can be imported by name here';
  if (names.length > 10) return 'it is not among the imports';
  sort(names);
  let text = names[0];
  for (let i = 1; i < names.length; i++) text += ', ' + names[i];
  return `only ${text} can be imported by name here`;
}

const sort = uncurry($Array.prototype.sort);

function load(name) {
  let module = mapGet(loaded, name);
  if (module !== undefined) return module;
  module = new SourceTextModule(mapGet(sources, name), {
    identifier: name,
    importModuleDynamically: (specifier) => importModule(name, specifier),
  });
  mapSet(loaded, name, module);
  return module;
}

function loadBare(specifier) {
  let module = mapGet(loadedBare, specifier);
  if (module !== undefined) return module;
  const values = mapGet(synthetic, specifier);
  if (values !== undefined) {
    const names = [];
    for (let i = 0; i < values.length; i += 2) push(names, values[i]);
    module = new SyntheticModule(names, function () {
      for (let i = 0; i < values.length; i += 2) this.setExport(values[i], values[i + 1]);
    }, { identifier: specifier });
  } else {
    module = new SourceTextModule(mapGet(bare, specifier), {
      identifier: `skein:${specifier}`,
      importModuleDynamically: (wanted) => importModule('', wanted),
    });
    mapSet(libraries, module, true);
  }
  mapSet(loadedBare, specifier, module);
  return module;
}

const libraries = new $Map(); // modules of the harness

const linker = (base) => (specifier, referrer) => find(mapHas(libraries, referrer) ? '' : (referrer?.identifier ?? base), specifier);

let linking = resolvePromise.call($Promise); // one graph is linked at a time: they share modules

// link links a module and what it imports.
function link(module, base) {
  linking = then(linking, () => (module.status === 'unlinked' ? module.link(linker(base)) : undefined));
  const mine = linking;
  linking = then(linking, undefined, () => {});
  return mine;
}

// importModule returns a module, linked and evaluated.
async function importModule(base, specifier) {
  importing++;
  let module;
  try {
    module = find(base, specifier);
    await link(module, base);
  } finally {
    importing--;
    settleSoon();
  }
  // The module's own top-level await may never end: it does not count as an import under way.
  await module.evaluate();
  return module;
}
