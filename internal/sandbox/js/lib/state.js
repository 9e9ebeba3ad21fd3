// The scopes of state: request, session and thread state. The value is a function that takes the host's side (sys) and
// functions of definition.js (parts: keep, alive), and returns { statesFor, sendable, changesSent, beginStates }.
(function (sys, parts) {
  'use strict';
  let scopes; // what the host says of them

  // sendable copies a value as the host would receive it: it returns { value }, or { refused } with the reason.
  function sendable(value) {
    try {
      return { value: sys.clone(value) };
    } catch (e) {
      return { refused: refusalOf(e) };
    }
  }

  function refusalOf(e) {
    if (e?.name === 'InternalError') throw e; // out of memory
    const told = e?.name === 'DataCloneError' && /^(?:the value at ([^]*?)|this value) cannot be cloned: ([^]*)$/.exec(e.message);
    if (told) return told[1] ? `${told[2]}, at ${told[1]}` : told[2];
    let text = 'an error';
    try {
      text = String(e);
    } catch {}
    return `reading it throws ${text}`;
  }

  // notKept reports in the log of the code that a value cannot be saved. It returns the arguments of state.skip, which
  // reports it in the thread's log.
  function notKept(scope, key, reason) {
    console.error(`state was not kept: the value of "${String(key)}" in ${scope} state cannot be saved: ${reason}`);
    return [scope, String(key), reason];
  }

  // ---- changes of session state -----------------------------------------------------------------------

  // The isolate has one session state, whose methods return at once. Every change of it is sent to the host too. One
  // change is under way at a time, because the host does not handle calls in the order in which they are made.
  const session = new Map();

  // The changes that wait for the one under way, in order, and by key the newest of them, if it is a set.
  const changes = new Set();
  const sets = new Map();
  let sending = false;
  let newest; // the promise that the newest change has been sent

  function change(invocation, method, args) {
    const [key] = args;
    invocation = parts.alive(invocation);
    if (method === 'session.set') {
      const last = sets.get(key);
      if (last?.invocation === invocation) {
        last.args = args;
        return;
      }
    }
    if (method === 'session.clear') changes.forEach((c) => c.method !== 'state.skip' && drop(c));
    if (method === 'session.delete' && sets.has(key)) drop(sets.get(key));
    const made = { invocation, method, args };
    newest = new Promise((sent, failed) => Object.assign(made, { sent, failed }));
    parts.keep(invocation, newest);
    changes.add(made);
    if (method === 'session.set') sets.set(key, made);
    if (!sending) sendChanges();
  }

  // take removes a change from those that wait; drop does so with one that another makes void.
  function take(c) {
    changes.delete(c);
    if (sets.get(c.args[0]) === c) sets.delete(c.args[0]);
  }
  function drop(c) {
    take(c);
    c.sent();
  }

  async function sendChanges() {
    sending = true;
    for (const c of changes) {
      take(c);
      try {
        c.sent(await sys.call(c.invocation, c.method, c.args, true));
      } catch (e) {
        c.failed(e);
      }
    }
    sending = false;
  }

  // changesSent returns a promise that the host has handled the changes made so far, or null if it has handled all.
  const changesSent = () => (sending ? newest.catch(() => {}) : null);

  function changeSession(invocation, name, args) {
    if (name === 'set') {
      const { refused, value } = sendable(args[1]);
      if (refused !== undefined) return change(invocation, 'state.skip', notKept('session', args[0], refused));
      args = [args[0], value];
    }
    change(invocation, 'session.' + name, args);
  }

  // ---- scopes -----------------------------------------------------------------------------------------

  const pushed = (key, list, value, max) => {
    if (list === undefined) list = [];
    if (!Array.isArray(list)) throw new TypeError(`push to "${key}": the value is not an array`);
    const next = [...list, value];
    return max > 0 ? next.slice(-max) : next;
  };

  // A scope whose methods return at once; changed receives each change, so that it is applied elsewhere too.
  const scopeOf = (map, changed) => ({
    get: (key) => map.get(key),
    has: (key) => map.has(key),
    set(key, value) {
      map.set(key, value);
      changed('set', [key, value]);
    },
    delete(key) {
      const there = map.delete(key);
      changed('delete', [key]);
      return there;
    },
    clear() {
      map.clear();
      changed('clear', []);
    },
    push(key, value, max = 0) {
      const next = pushed(key, map.get(key), value, max);
      map.set(key, next);
      changed('set', [key, next]);
    },
    keys: () => [...map.keys()],
    values: () => [...map.values()],
    entries: () => [...map.entries()],
    get size() {
      return map.size;
    },
  });

  function threadStateFor(invocation) {
    const ask = (name, ...args) => sys.call(invocation, name, args, true);
    let loaded = false;
    let dirty = false;
    const read = async (name, ...args) => {
      const v = await ask(name, ...args);
      loaded = true;
      return v;
    };
    const write = async (name, ...args) => {
      await ask(name, ...args);
      dirty = true;
    };
    const keepValue = async (name, key, value, ...more) => {
      const copy = sendable(value); // before anything is awaited: the code may change the value
      if (copy.refused === undefined) return write(name, key, copy.value, ...more);
      await sys.call(invocation, 'state.skip', notKept('thread', key, copy.refused), false).catch(() => {});
    };
    const entries = () => read('thread.entries');
    return {
      get: async (key) => (await read('thread.get', key))[0],
      has: (key) => read('thread.has', key),
      set: (key, value) => keepValue('thread.set', key, value),
      delete: (key) => write('thread.delete', key),
      clear: () => write('thread.clear'),
      push: (key, value, max) => keepValue('thread.push', key, value, max),
      entries,
      keys: async () => (await entries()).map(([k]) => k),
      values: async () => (await entries()).map(([, v]) => v),
      size: async () => (await entries()).length,
      get loaded() {
        return loaded;
      },
      get dirty() {
        return dirty;
      },
    };
  }

  const statesFor = (invocation) => ({
    request: { state: scopeOf(new Map(), () => {}) },
    session: { id: scopes.session, state: scopeOf(session, (name, args) => changeSession(invocation, name, args)) },
    thread: { id: scopes.thread, state: threadStateFor(invocation) },
  });

  // beginStates takes what the host says of the isolate.
  function beginStates({ $scopes }) {
    scopes = $scopes;
    for (const [key, value] of scopes?.entries ?? []) session.set(key, value);
  }

  return { statesFor, sendable, changesSent, beginStates };
});
