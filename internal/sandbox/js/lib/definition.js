// The environment of definition code in its isolate. The value of this script is a function that takes the host's
// side (sys), the functions of state.js (states) and thread.js (threads), and what globals.js returns (http). It returns
// begin, which takes what the host says of the isolate (statics) and returns { describe, invoke }. Images of engines have all
// but the call of begin behind them, so what can be made before belongs outside it.
(function (sys, states, threads, http) {
  'use strict';
  const kindKey = Symbol.for('skein.kind');
  // endpoint is the invocation that handles the request of a thread endpoint, if the isolate was opened for one. The
  // names of invocations of the handlers of the agent's sides begin with the text in handlers.
  // ids is the invocation that a gateway asks for the id of a request's thread; code sets who answers with
  // setThreadIDProvider of "@agentuity/runtime".
  let endpoint, handlers, ids;
  const answering = {};

  // ---- runCode ----------------------------------------------------------------------------------------

  let lastRun = 0;
  // The number of nested runs that wait for the current computation. It is known only where a function that was
  // passed to a run calls runCode before it awaits anything.
  let depth = 0;

  // Wraps the functions of a run's globals or of one of its imports so that they know at which depth they are called.
  function bridged(values, level) {
    const proto = values !== null && typeof values === 'object' ? Object.getPrototypeOf(values) : undefined;
    if (proto !== Object.prototype && proto !== null) return values;
    const out = {};
    for (const name of Object.keys(values)) {
      const value = values[name];
      const call = (...args) => {
        const outer = depth;
        depth = level;
        try {
          return value(...args);
        } finally {
          depth = outer;
        }
      };
      Object.defineProperty(out, name, {
        value: typeof value === 'function' ? call : value,
        enumerable: true,
      });
    }
    return out;
  }

  // The handle of a runCode call: awaitable, with terminate(reason), reports and running.
  function runCode(invocation, source, options, call) {
    const id = ++lastRun;
    const level = depth + 1;
    const reports = [];
    let running = true;
    let sent = options;
    if (options === undefined || (options !== null && typeof options === 'object')) {
      sent = { ...options };
      if (sent.globals !== undefined) sent.globals = bridged(sent.globals, level);
      if (sent.imports !== null && typeof sent.imports === 'object') {
        const imports = sent.imports;
        sent.imports = Object.fromEntries(Object.keys(imports).map((name) => [name, bridged(imports[name], level)]));
      }
      const report = sent.report;
      if (report === undefined || typeof report === 'function') {
        sent.report = (value) => {
          reports.push(value);
          return report?.(value);
        };
      }
    }
    const result = call('runCode', [source, sent, id, level], true).finally(() => {
      running = false;
    });
    return {
      then: (done, failed) => result.then(done, failed),
      catch: (failed) => result.catch(failed),
      finally: (f) => result.finally(f),
      terminate: (reason = 'terminated by its caller') => {
        sys.call(invocation, 'runCode.terminate', [id, String(reason)], false).catch(() => {});
      },
      get running() {
        return running;
      },
      get reports() {
        return [...reports];
      },
    };
  }

  // ---- scopes: request, session and thread state ------------------------------------------------------

  // What an invocation has sent and not awaited, and its work that continues after the response.
  const sent = new Map();
  const waiting = new Map();

  // keep makes an invocation await a promise that its code does not await.
  function keep(invocation, promise) {
    promise.catch(() => {}); // reported when it is awaited
    sent.get(invocation)?.push(promise);
  }

  const serving = new Set(); // the invocations of handlers under way, the newest last
  // The invocation in whose name code calls the host after its own invocation has ended, as a listener does.
  const alive = (invocation) => (sent.has(invocation) ? invocation : ([...serving].at(-1) ?? invocation));

  const { statesFor, sendable, changesSent, beginStates } = states(sys, { keep, alive });

  const scopesFor = (invocation) => ({
    ...statesFor(invocation),
    waitUntil(work) {
      const list = waiting.get(invocation);
      if (list === undefined) throw new Error('waitUntil: the call that this belongs to has ended');
      const promise = (async () => (typeof work === 'function' ? work() : work))();
      promise.catch(() => {}); // reported when it is awaited
      list.push(promise);
    },
  });

  // settle awaits what an invocation has sent. Values that cannot cross are reported and omitted.
  async function settle(invocation) {
    const list = sent.get(invocation);
    while (list.length > 0) {
      for (const r of await Promise.allSettled(list.splice(0))) {
        if (r.status === 'rejected') console.error('state was not kept: ' + r.reason?.message);
      }
    }
  }

  // ---- state ------------------------------------------------------------------------------------------

  // The calls of an invocation that the API types as void.
  const posted = new Map();

  // post registers such a call: the invocation ends after it, and fails with it unless the code awaited it itself.
  function post(invocation, promise) {
    const call = { promise, heard: false };
    promise.catch(() => {}); // reported below
    posted.get(invocation)?.push(call);
    const hear = (f) => {
      call.heard = true;
      return f(promise);
    };
    return {
      then: (done, failed) => hear((p) => p.then(done, failed)),
      catch: (failed) => hear((p) => p.catch(failed)),
      finally: (f) => hear((p) => p.finally(f)),
    };
  }

  async function settlePosted(invocation) {
    const list = posted.get(invocation);
    let failed;
    while (list.length > 0) {
      for (const call of list.splice(0)) {
        try {
          await call.promise;
        } catch (e) {
          if (!call.heard) failed ??= e;
        }
      }
    }
    if (failed !== undefined) throw failed;
  }

  const { stateFor, refresh, used, explain, beginThreads } = threads(sys, { runCode, post, scopesFor, sendable, changesSent });

  // ---- handlers of an agent's sides -------------------------------------------------------------------

  let handlerParts;
  const handler = () => (handlerParts ??= sys.handlerParts(sys, { stateFor, scopesFor, keep, alive, sendable }));
  // What calls a model, for the module "ai". The calls belong to the newest handler's invocation.
  const models = Object.freeze({
    call(method, ...args) {
      const invocation = [...serving].at(-1);
      if (invocation === undefined) throw new Error('a model can only be asked while a handler is called, or by its waitUntil work');
      return sys.call(invocation, 'model.' + method, args, false);
    },
  });

  // ---- definitions ------------------------------------------------------------------------------------

  const isSchema = (v) => v !== null && typeof v === 'object' && '_zod' in v;

  // The zod schema of a definition's arguments, if it has one: a schema, or an object of schemas.
  async function schemaOf(args) {
    if (isSchema(args)) return args;
    if (args === null || typeof args !== 'object') return undefined;
    const fields = Object.values(args);
    if (fields.length === 0 || !fields.every(isSchema)) return undefined;
    return (await import('zod')).object(args);
  }

  function definitionOf(ns) {
    const definition = ns.default;
    if (typeof definition === 'function') return { execute: definition };
    if (definition === null || typeof definition !== 'object') {
      throw new TypeError('the module has no default export: export default defineTool({ … })');
    }
    return definition;
  }

  async function describe(ns) {
    used();
    const definition = definitionOf(ns);
    let args = null;
    const schema = await schemaOf(definition.args);
    if (schema !== undefined) {
      const zod = await import('zod');
      args = { ...zod.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) };
      delete args.$schema;
      delete args['~standard'];
    } else if (definition.args !== undefined && definition.args !== null) {
      args = definition.args;
    }
    return {
      kind: definition[kindKey] ?? (typeof ns.default === 'function' ? 'function' : 'tool'),
      description: typeof definition.description === 'string' ? definition.description : '',
      args,
    };
  }

  // Runs an invocation: the definition's execute, a side's handler, or the handler of an endpoint's request.
  async function execute(ns, invocation, args) {
    if (handlers !== undefined && invocation.startsWith(handlers)) return handler().serve(ns, invocation, args);
    if (ids !== undefined && invocation === ids) {
      if (answering.ask === undefined) throw new TypeError('the code sets no provider: call getThreadProvider().setThreadIDProvider({ getThreadId })');
      return answering.ask(args);
    }
    const definition = definitionOf(ns);
    if (endpoint !== undefined && invocation === endpoint) {
      const send = (method, values) => sys.call(invocation, method, values, false);
      return http().serve(definition, args, stateFor(invocation, ns), send);
    }
    if (typeof definition.execute !== 'function') {
      throw new TypeError('the default export has no function named execute');
    }
    const schema = await schemaOf(definition.args);
    if (schema !== undefined) {
      const parsed = await schema.safeParseAsync(args ?? {});
      if (!parsed.success) {
        const issues = parsed.error.issues.map((i) => `${i.path.length ? i.path.join('.') + ': ' : ''}${i.message}`);
        throw new TypeError(`invalid arguments: ${issues.join('; ')}`);
      }
      args = parsed.data;
    }
    return definition.execute(stateFor(invocation, ns), args);
  }

  async function invoke(ns, invocation, args) {
    sent.set(invocation, []);
    waiting.set(invocation, []);
    posted.set(invocation, []);
    if (handlers !== undefined && invocation.startsWith(handlers)) serving.add(invocation);
    try {
      await refresh(invocation);
      let result;
      try {
        result = await execute(ns, invocation, args);
      } catch (e) {
        await settle(invocation); // what it sent before it failed must not be lost
        throw explain(invocation, e);
      }
      await settlePosted(invocation);
      await settle(invocation);
      const work = waiting.get(invocation);
      if (work.length > 0) {
        await sys.call(invocation, 'waitUntil.respond', [result], false);
        while (work.length > 0) {
          for (const r of await Promise.allSettled(work.splice(0))) {
            if (r.status === 'rejected') console.error('work after the response failed:', r.reason);
          }
          await settlePosted(invocation).catch((e) => console.error('work after the response failed:', e));
          await settle(invocation);
        }
      }
      return result;
    } finally {
      sent.delete(invocation);
      waiting.delete(invocation);
      posted.delete(invocation);
      serving.delete(invocation);
    }
  }

  // ---- the beginning of an isolate --------------------------------------------------------------------

  return function begin(statics) {
    ({ $endpoint: endpoint, $handler: handlers, $ids: ids } = statics);
    beginStates(statics);
    beginThreads(statics);
    if (ids !== undefined) Object.defineProperty(globalThis, Symbol.for('skein.ids'), { value: answering });
    if (handlers !== undefined) Object.defineProperty(globalThis, Symbol.for('skein.models'), { value: models });
    return { describe, invoke };
  };
});
