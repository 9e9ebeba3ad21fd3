// ThreadState: what code receives as `state`, and what getChildThread and getParentThread return. The value is a function
// that takes the host's side (sys) and functions of definition.js (parts: runCode, post, scopesFor, sendable, changesSent), and returns
// { stateFor, refresh, used, explain, beginThreads }.
(function (sys, parts) {
  'use strict';
  // What beginThreads sets, before everything else is called.
  let properties;
  // Without a list of its methods, every name that is not a property is a method. The list is searched: most code calls few
  // methods, and a set of all names would take longer to make.
  let known;
  let context; // state.context: one object for the isolate's whole life
  let scoped; // whether state has scopes
  let platform; // what the platform team configured, for modules that use it

  // Methods whose result the API types as ArrayBuffer.
  const buffers = new Set(['readFile', 'getFileThumbnail']);
  const asBuffer = (v) => (v instanceof Uint8Array ? v.buffer : v);
  // Methods that the API types as void: code need not await them.
  const unawaited = new Set(['emit', 'queueTool']);
  // Methods that may change the properties of the thread.
  const changing = new Set(['invokeTool', 'terminate', 'setStatus']);

  // A route determines how the methods of a thread are called: of the isolate's own thread, or of another in its tree.
  const ownRoute = (invocation) => ({
    invocation,
    call: (name, args, functions = false) => sys.call(invocation, name, args, functions),
  });
  const routeOf = (invocation, thread) => ({
    invocation,
    call: (name, args, functions = false) => sys.call(invocation, 'state.of', [thread, name, args], functions),
  });

  // Calls that need not be awaited are made in order, one after the other, each with the arguments as they were then.
  let before = null;
  function inOrder(route, name, args) {
    let made;
    if (before === null) {
      made = route.call(name, args);
    } else {
      const kept = sys.clone(args);
      made = before.then(() => route.call(name, kept));
    }
    const settled = made.then(
      () => {},
      () => {},
    );
    before = settled;
    settled.then(() => {
      if (before === settled) before = null;
    });
    return made;
  }

  // Makes a call at which the host may save the run: after it has handled the changes of session state that precede the call.
  async function afterChanges(route, name, args) {
    const sent = parts.changesSent();
    if (sent === null) return route.call(name, args);
    const kept = sys.clone(args);
    await sent;
    return route.call(name, kept);
  }

  // ---- files as streams -------------------------------------------------------------------------------

  const aborted = (signal) => {
    if (signal?.aborted) throw signal.reason;
  };

  // Each loop over it reads the file from the start. Leaving a loop, by break or by an error, closes the file.
  function chunks(route, path, signal) {
    const stream = (step, id) => sys.call(route.invocation, 'readFileStream.' + step, [id], false);
    return {
      async *[Symbol.asyncIterator]() {
        aborted(signal);
        const id = await route.call('readFileStream.open', [path]);
        try {
          for (let last = false; !last; ) {
            aborted(signal);
            const chunk = await stream('next', id);
            aborted(signal);
            if (chunk === null) return;
            last = chunk.isLast;
            yield chunk;
          }
        } finally {
          stream('close', id).catch(() => {});
        }
      },
    };
  }

  async function readFileStream(route, path, options) {
    if (options !== undefined && (options === null || typeof options !== 'object')) {
      throw new TypeError('state.readFileStream: argument 2 must be the options, an object: { signal }');
    }
    aborted(options?.signal);
    return (await route.call('readFileStream', [path])) ? chunks(route, path, options?.signal) : null;
  }

  // ---- key-values -------------------------------------------------------------------------------------

  async function setValue(route, key, value) {
    const copy = parts.sendable(value);
    if (copy.refused !== undefined) throw new TypeError(`state.setValue: the value for "${String(key)}" is not JSON: ${copy.refused}`);
    return route.call('setValue', [key, copy.value]);
  }

  // ---- execution --------------------------------------------------------------------------------------

  // One for the isolate, which belongs to one run. properties.execution has the latest state that the host reported.
  const stopping = new AbortController();
  function executionFor(invocation) {
    const execution = {
      forceTurn(side) {
        if (side !== 'a' && side !== 'b') throw new RangeError(`forceTurn takes the side "a" or "b", not ${String(side)}`);
        return parts.post(invocation, sys.call(invocation, 'execution.forceTurn', [side], false));
      },
      stop() {
        Object.assign(properties.execution, { stopped: true, stoppedBy: properties.execution.currentSide });
        stopping.abort(new DOMException('the execution was stopped', 'AbortError'));
        return parts.post(invocation, sys.call(invocation, 'execution.stop', [], false));
      },
      get abortSignal() {
        return stopping.signal;
      },
    };
    for (const name of ['flowId', 'currentSide', 'stepCount', 'sideAStepCount', 'sideBStepCount', 'stopped', 'stoppedBy', 'promptPath', 'messageHistory']) {
      Object.defineProperty(execution, name, { enumerable: true, get: () => properties.execution[name] });
    }
    return Object.freeze(execution);
  }

  // ---- threads ----------------------------------------------------------------------------------------

  // Reads the current properties from the host: code that ran since the isolate was opened may have changed them.
  let fresh = true;
  const used = () => {
    fresh = false;
  };
  async function refresh(invocation) {
    if (known && !fresh) Object.assign(properties, await sys.call(invocation, 'state.now', [], false));
    used();
  }

  const methodOf = (route, own, name) => {
    if (name === 'runCode') return (source, options) => parts.runCode(route.invocation, source, options, route.call);
    if (name === 'setValue') return (key, value) => setValue(route, key, value);
    if (name === 'readFileStream') return (path, options) => readFileStream(route, path, options);
    if (name === 'getChildThread' || name === 'getParentThread') {
      return async (...args) => {
        const other = await route.call(name, args);
        if (!known || other === null) return other;
        return other.threadId === properties.threadId ? stateOf(route.invocation) : otherThread(route.invocation, other);
      };
    }
    if (buffers.has(name)) return (...args) => route.call(name, args).then(asBuffer);
    if (unawaited.has(name)) return (...args) => parts.post(route.invocation, inOrder(route, name, args));
    if (own && known && changing.has(name)) {
      return async (...args) => {
        const result = await afterChanges(route, name, args);
        await refresh(route.invocation);
        return result;
      };
    }
    return (...args) => route.call(name, args);
  };

  // Creates a ThreadState with these properties; more holds those of the invocation itself.
  function threadState(route, statics, own, more) {
    const methods = new Map();
    const method = (name) => {
      let f = methods.get(name);
      if (f === undefined) methods.set(name, (f = methodOf(route, own, name)));
      return f;
    };
    const hidden = (name) => name.endsWith('()') || name[0] === '$';
    const isMethod = (name) => (known ? known.includes(name) : name[0] !== '_' && name !== 'then' && name !== 'toJSON');
    const valueOf = (name) => {
      if (typeof name === 'symbol') return undefined;
      if (Object.hasOwn(more, name)) return more[name];
      if (Object.hasOwn(statics, name) && !hidden(name)) return statics[name];
      // A method whose result is known beforehand returns at once.
      if (Object.hasOwn(statics, name + '()')) return () => statics[name + '()'];
      return isMethod(name) ? method(name) : undefined;
    };
    const isProperty = (name) => Object.hasOwn(more, name) || (Object.hasOwn(statics, name) && !hidden(String(name)));
    return new Proxy(
      {},
      {
        get: (_, name) => valueOf(name),
        has: (_, name) => isProperty(name) || (known?.includes(name) ?? false),
        set(_, name, value) {
          if (name === 'context' && Object.hasOwn(more, name) && value !== null && typeof value === 'object') {
            more.context = value;
            return true;
          }
          throw new TypeError(`state.${String(name)} cannot be set: keep what is yours in state.context`);
        },
        deleteProperty: () => false,
        defineProperty: () => false,
        // The methods are not enumerable: as with instances of a class, a copy of the state has only the properties.
        ownKeys: () => [...new Set([...Object.keys(more), ...Object.keys(statics).filter((n) => !hidden(n)), ...(known ?? [])])],
        getOwnPropertyDescriptor(_, name) {
          if (!isProperty(name) && !known?.includes(name)) return undefined;
          return { value: valueOf(name), enumerable: isProperty(name), configurable: true };
        },
      },
    );
  }

  // Package compile tells which modules read what the platform team configured. For the others nobody would notice that they
  // cannot be packed.
  let lastRead = '';
  const readers = new Set(); // invocations of such modules

  // Returns a frozen copy of plain data that records which parts are read, so that a failed call of one can be explained.
  function watched(value, path) {
    if (value === null || typeof value !== 'object') return value;
    const copy = Array.isArray(value) ? [] : {};
    for (const name of Object.keys(value)) {
      Object.defineProperty(copy, name, { value: watched(value[name], `${path}.${name}`), enumerable: true });
    }
    return new Proxy(Object.freeze(copy), {
      get(target, name) {
        if (typeof name === 'string') lastRead = `${path}.${name}`;
        return target[name];
      },
    });
  }

  // explain extends the error of code that called a value of the platform team's configuration: it has no functions.
  function explain(invocation, e) {
    if (!readers.has(invocation) || lastRead === '' || !(e instanceof TypeError) || !/not a function/.test(e.message)) return e;
    const note = `: if it is state.${lastRead} that was to be called, the runtimeContext of the SandboxPool holds plain data and no functions; reach a service with a Tool (http or mcp) and state.invokeTool, and shared values with ctx.kv of a handler`;
    try {
      Object.defineProperty(e, 'message', { value: e.message + note, writable: true, configurable: true });
    } catch {} // the code has frozen it
    return e;
  }

  // Returns the state for an invocation of a module.
  function stateFor(invocation, ns) {
    if (platform !== undefined && ns?.$skeinReadsRuntimeContext === true) readers.add(invocation);
    return stateOf(invocation);
  }

  function stateOf(invocation) {
    const more = Object.defineProperty({ ...(scoped ? parts.scopesFor(invocation) : {}) }, 'context', {
      enumerable: true,
      get: () => context,
      set(value) {
        context = value;
      },
    });
    if (readers.has(invocation)) Object.defineProperty(more, '_notPackableRuntimeContext', { value: platform });
    let execution;
    Object.defineProperty(more, 'execution', {
      enumerable: properties.execution !== undefined,
      get: () => (properties.execution ? (execution ??= executionFor(invocation)) : properties.execution),
    });
    return threadState(ownRoute(invocation), properties, true, more);
  }

  // Another thread of the tree, as it was when it was requested. It has its own scratch context, and its run, if there
  // is one, is hidden from this code.
  function otherThread(invocation, statics) {
    return threadState(routeOf(invocation, statics.threadId), statics, false, { context: {}, execution: null });
  }

  // beginThreads takes what the host says of the isolate.
  function beginThreads(statics) {
    const { $scopes, $methods, $context, $runtimeContext, ...rest } = statics;
    properties = rest;
    known = $methods;
    context = $context ?? {};
    scoped = Boolean($scopes);
    platform = $runtimeContext && watched($runtimeContext, '_notPackableRuntimeContext');
  }

  return { stateFor, refresh, used, explain, beginThreads };
});
