// Describes thrown values, and formats values as consoles show them.

const MAX_TEXT = 32 << 10;
const cut = (s, n = MAX_TEXT) => (s.length > n ? toWellFormed(slice(s, 0, n)) + '…' : toWellFormed(s));

// textOf reads a property that should be a string, and ignores errors of getters.
function textOf(v, name) {
  try {
    const s = v[name];
    return typeof s === 'string' ? s : '';
  } catch {
    return '';
  }
}

// infoOf describes a thrown value: { name, message, stack, isError }. stack has only the frames of user code.
function infoOf(v) {
  if ((typeof v !== 'object' && typeof v !== 'function') || v === null) {
    return { __proto__: null, name: 'Error', message: cut(primitive(v)), stack: '', isError: false };
  }
  const isError = !isProxy(v) && isNativeError(v);
  let name = cut(textOf(v, 'name'));
  let message = cut(textOf(v, 'message'));
  if (name === '') name = 'Error';
  if (message === '' && !isError) message = inspect(v);
  return { __proto__: null, name, message, stack: framesOf(textOf(v, 'stack')) + causesOf(v), isError };
}

const MAX_CAUSES = 5;

// causesOf returns the stacks of the errors that caused an error, each below a line that names it.
function causesOf(v) {
  let out = '';
  for (let i = 0; i < MAX_CAUSES; i++) {
    try {
      v = v.cause;
    } catch {
      break;
    }
    if (typeof v !== 'object' || v === null || isProxy(v) || !isNativeError(v)) break;
    out += `caused by: ${cut(textOf(v, 'name'))}: ${cut(textOf(v, 'message'))}\n${framesOf(textOf(v, 'stack'))}`;
  }
  return out;
}

// framesOf returns the lines of a stack that are frames of user code, in the format of the default engine:
// "    at name (file:line:column)".
function framesOf(stack) {
  let out = '';
  let at = 0;
  let kept = 0;
  while (at < stack.length && kept < 100 && out.length < MAX_TEXT) {
    let end = indexOf(stack, '\n', at);
    if (end < 0) end = stack.length;
    let line = slice(stack, at, end);
    at = end + 1;
    if (!startsWith(line, '    at ') || isOurs(line)) continue;
    line = slice(line, 7);
    if (startsWith(line, 'async ')) line = slice(line, 6);
    if (startsWith(line, 'Module.')) line = slice(line, 7);
    out += `    at ${line}\n`;
    kept++;
  }
  return toWellFormed(out);
}

// isOurs reports whether the line of a frame belongs to the harness or to Deno and not to user code.
const isOurs = (line) =>
  indexOf(line, self) >= 0 || indexOf(line, '(ext:') >= 0 || indexOf(line, 'at ext:') >= 0 || indexOf(line, '(node:') >= 0 ||
  indexOf(line, 'skein:') >= 0 || endsWith(line, '(<anonymous>)') || endsWith(line, '(native)');

const INSPECT_DEPTH = 4;
const INSPECT_ITEMS = 100;
const INSPECT_LENGTH = 64 << 10;

// inspect formats a value for people. It runs no user code: getters and proxies are named, not called.
function inspect(v) {
  const i = { __proto__: null, out: '', above: new $Set() };
  show(i, v, 0);
  return cut(i.out, INSPECT_LENGTH);
}

function primitive(v) {
  switch (typeof v) {
    case 'bigint':
      return bigIntText(v, 10);
    case 'symbol':
      return `Symbol(${symbolDescription(v) ?? ''})`;
  }
  return $String(v);
}

function show(i, v, depth) {
  if (i.out.length > INSPECT_LENGTH) return;
  if ((typeof v === 'object' && v !== null) || typeof v === 'function') return showObject(i, v, depth);
  if (typeof v === 'string') i.out += depth === 0 ? cut(v, INSPECT_LENGTH) : quoted(cut(v, INSPECT_LENGTH));
  else i.out += typeof v === 'bigint' ? primitive(v) + 'n' : primitive(v);
}

const quoted = JSON.stringify;

// ownText reads an own property that is a string, without running a getter.
function ownText(v, name) {
  const d = getOwnPropertyDescriptor(v, name);
  return d !== undefined && typeof d.value === 'string' ? d.value : '';
}

function showObject(i, v, depth) {
  if (setHas(i.above, v)) {
    i.out += '[Circular]';
    return;
  }
  setAdd(i.above, v);
  showKind(i, v, depth);
  setDelete(i.above, v);
}

function showKind(i, v, depth) {
  if (isProxy(v)) i.out += '[Proxy]';
  else if (typeof v === 'function') i.out += ownText(v, 'name') === '' ? '[Function]' : `[Function: ${ownText(v, 'name')}]`;
  else if (isNativeError(v)) {
    const said = infoOf(v);
    i.out += said.message === '' ? said.name : `${said.name}: ${said.message}`;
    if (depth === 0 && said.stack !== '') i.out += '\n' + slice(said.stack, 0, said.stack.length - 1);
  } else if (isKind.date(v)) i.out += dateTime(v) === dateTime(v) ? dateText(v) : 'Invalid Date';
  else if (isPromise(v)) i.out += '[Promise]';
  else if (isKind.regexp(v)) showRegExp(i, v);
  else if (isKind.boxed(v) && !isKind.symbolObject(v)) show(i, unboxed(v), depth + 1);
  else if (typedName(v) !== undefined || isKind.anyBuffer(v) || isKind.dataView(v)) i.out += '[bytes]';
  else if (depth >= INSPECT_DEPTH) i.out += '[Object]';
  else if (isKind.map(v)) showMembers(i, v, 'Map', mapEach, mapSize(v), depth);
  else if (isKind.set(v)) showMembers(i, v, 'Set', setEach, setSize(v), depth);
  else if (isArray(v)) showArray(i, v, depth);
  else showProperties(i, v, depth);
}

function showRegExp(i, v) {
  try {
    i.out += cut(regexpText(v), INSPECT_LENGTH);
  } catch {
    i.out += '[RegExp]';
  }
}

function showProperty(i, d, depth) {
  if (d === undefined) i.out += 'undefined';
  else if (d.get !== undefined || d.set !== undefined) i.out += '[Getter]';
  else show(i, d.value, depth + 1);
}

function showArray(i, v, depth) {
  const n = v.length;
  i.out += '[';
  for (let k = 0; k < min(n, INSPECT_ITEMS); k++) {
    if (k > 0) i.out += ', ';
    showProperty(i, getOwnPropertyDescriptor(v, k), depth);
    if (i.out.length > INSPECT_LENGTH) break;
  }
  if (n > INSPECT_ITEMS) i.out += `, … ${n - INSPECT_ITEMS} more`;
  i.out += ']';
}

function showMembers(i, v, name, each, n, depth) {
  i.out += `${name}(${n}) {`;
  let k = 0;
  each(v, (value, key) => {
    if (k < INSPECT_ITEMS && i.out.length <= INSPECT_LENGTH) {
      i.out += k === 0 ? ' ' : ', ';
      if (name === 'Map') {
        show(i, key, depth + 1);
        i.out += ' => ';
      }
      show(i, value, depth + 1);
    }
    k++;
  });
  i.out += ' }';
}

function showProperties(i, v, depth) {
  const names = ownKeys(v);
  let shown = 0;
  for (let k = 0; k < names.length; k++) {
    const name = names[k];
    if (typeof name !== 'string') continue;
    const d = getOwnPropertyDescriptor(v, name);
    if (d === undefined || !d.enumerable) continue;
    if (shown >= INSPECT_ITEMS || i.out.length > INSPECT_LENGTH) {
      i.out += ', …';
      break;
    }
    i.out += `${shown === 0 ? '{ ' : ', '}${name}: `;
    showProperty(i, d, depth);
    shown++;
  }
  i.out += shown === 0 ? '{}' : ' }';
}
