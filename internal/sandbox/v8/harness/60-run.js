// One runCode call: import the main module, call the export, send the result.

const MAX_REPORTS = 10_000;
const MAX_REPORT_BYTES = 32 << 20;

function run(open) {
  let settled = false;
  let reports = 0;
  let reportBytes = 0;

  // settle sends the result, after unhandled rejections were reported.
  const settle = (status, outcome) => settleWith(doneOf(status, outcome));
  const settleWith = (w) => {
    if (settled) return;
    settled = true;
    later(() => {
      if (!send(FRAME.done, w)) send(FRAME.done, doneOf('error', failure('RangeError', tooLarge(w))));
    });
  };
  const failed = (thrown) => {
    const said = infoOf(thrown);
    if (isOutOfMemory(said)) return settle('memory', failure('InternalError', 'the code ran out of memory'));
    const error = { __proto__: null, name: said.name, message: said.message, stack: said.stack, specifier: '' };
    if (started) return settle('error', { __proto__: null, error });
    error.specifier = failedSpecifier === '' ? missingFrom(said.message, open.main) : failedSpecifier;
    settle('link_error', { __proto__: null, error });
  };
  const stuck = () => settle('error', failure('Error', STUCK));

  installConsole();
  hide(globalThis, 'report', {
    report(value) {
      const w = encodeOrThrow(value);
      reports++;
      reportBytes += w.size;
      if (reports > MAX_REPORTS || reportBytes > MAX_REPORT_BYTES) {
        throw new errorClasses.RangeError(`too much was reported: at most ${MAX_REPORTS} values and ${MAX_REPORT_BYTES >> 20} MiB`);
      }
      if (!send(FRAME.report, w)) throw new $Error(tooLarge(w));
    },
  }.report);
  bindAll(open);

  const importMain = async () => {
    const main = load(open.main);
    await link(main, '');
    start();
    await main.evaluate();
    return main; // not the namespace, which may have an export named then
  };
  wait(importMain(), (main) => {
    let result;
    try {
      result = callExport(main.namespace, open, settle);
    } catch (thrown) {
      return failed(thrown);
    }
    if (settled) return;
    wait(adopt(result), (value) => {
      let w;
      try {
        w = doneOf('success', { __proto__: null, value });
      } catch (thrown) {
        return Refusal.is(thrown) ? settle('error', failure('TypeError', thrown.message)) : failed(thrown);
      }
      settleWith(w);
    }, failed, stuck);
  }, failed, stuck);
}

// adopt returns a promise of a result, which may itself be a promise or a thenable.
const adopt = (v) => new $Promise((resolve) => resolve(v));

function doneOf(status, outcome) {
  const w = new Writer();
  w.text(status);
  w.uint(0); // the parent process measures the memory more precisely
  writeOutcome(w, outcome);
  return w;
}

// isOutOfMemory reports whether an error is the engine's own about a buffer for which there is no memory.
const isOutOfMemory = (said) => said.isError && said.name === 'RangeError' && said.message === 'Array buffer allocation failed';

function encodeOrThrow(value) {
  const w = new Writer();
  try {
    encodeTo(w, value);
    return w;
  } catch (thrown) {
    if (Refusal.is(thrown)) throw new errorClasses.TypeError(thrown.message);
    throw thrown;
  }
}

// missingFrom returns the name of the module that lacks an export, according to an error.
function missingFrom(message, main) {
  const opening = "The requested module '";
  if (!startsWith(message, opening)) return '';
  const specifier = slice(message, opening.length, indexOf(message, "'", opening.length));
  return isRelative(specifier) ? join(dirOf(main), specifier) : specifier;
}

// bindAll defines the globals and registers the imports.
function bindAll(open) {
  for (let i = 0; i < open.bindings.length; i++) {
    const b = open.bindings[i];
    const value = b.func ? { [b.name](...args) { return hostCall({ __proto__: null, func: i }, args); } }[b.name] : decode(b.value);
    if (b.specifier === '') {
      defineProperty(globalThis, b.name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      continue;
    }
    if (!mapHas(synthetic, b.specifier)) mapSet(synthetic, b.specifier, []);
    const values = mapGet(synthetic, b.specifier);
    push(values, b.name);
    push(values, value);
  }
}

// callExport calls the requested export. An export that is not a function is the result itself.
function callExport(ns, open, settle) {
  const name = open.fn === '' ? 'default' : open.fn;
  const names = objectKeys(ns);
  let there = false;
  for (let i = 0; i < names.length; i++) there ||= names[i] === name;
  const value = there ? ns[name] : undefined;
  if (typeof value === 'function') {
    const args = decodeArgs(open.args);
    open.args = undefined; // releases the whole Open, which may be large
    return apply(value, undefined, args);
  }
  if (there || open.fn === '') return value;
  let list = names.length === 0 ? 'nothing' : names[0];
  for (let i = 1; i < names.length; i++) list += ', ' + names[i];
  settle('link_error', failure('ReferenceError', `the code exports no ${quoted(name)}: it exports ${list}`));
}
