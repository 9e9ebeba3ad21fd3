// Calls the handler of an agent's side, and notifies it of the session's end. The value is a function that takes the
// host's side (sys) and functions of definition.js (parts), and returns { serve }.
(function (sys, parts) {
  'use strict';
  const listenersOf = Symbol.for('skein.listeners');

  // ---- events -----------------------------------------------------------------------------------------

  async function tell(listeners, event, ...args) {
    for (const f of [...(listeners?.get(event) ?? [])]) {
      try {
        await f(event, ...args);
      } catch (e) {
        console.error(`a listener for ${event} failed: ${e?.stack ?? e}`);
      }
    }
  }

  const tellApp = (event, ...args) => tell(globalThis[Symbol.for('skein.app')]?.[listenersOf], event, ...args);

  function listening(target, events) {
    const listeners = new Map();
    return {
      listeners,
      target: Object.assign(target, {
        addEventListener(event, f) {
          if (typeof f !== 'function') throw new TypeError('addEventListener takes the name of an event and a function');
          if (!events.includes(event)) throw new TypeError(`addEventListener: there is no event "${String(event)}" here: use ${events.join(', ')}`);
          if (!listeners.has(event)) listeners.set(event, new Set());
          listeners.get(event).add(f);
        },
        removeEventListener(event, f) {
          listeners.get(event)?.delete(f);
        },
      }),
    };
  }

  // ---- the session and the thread: one of each for the isolate, whose run is one --------------------------

  let session;
  let thread;
  function scopes(invocation) {
    const own = parts.scopesFor(invocation);
    if (session === undefined) {
      session = listening({ id: own.session.id, state: own.session.state }, ['completed']);
      thread = listening({ id: 'thrd_' + own.thread.id.replaceAll('-', '') }, ['destroyed']); // the thread's id in the format of this API (IDS-01)
      session.target.thread = thread.target;
    }
    // Calls for the state of session and thread belong to the newest invocation: an earlier one may still have work under way.
    session.target.state = own.session.state;
    Object.assign(thread.target, {
      state: own.thread.state,
      empty: async () => (await own.thread.state.size()) === 0,
      async destroy() {
        await sys.call(invocation, 'handler.destroy', [], false);
        await tell(thread.listeners, 'destroyed', thread.target);
        await tellApp('thread.destroyed', thread.target);
      },
    });
    return own;
  }

  // ---- ctx ----------------------------------------------------------------------------------------------

  const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'];

  let lastLine = Promise.resolve();

  function loggerFor(invocation, fields) {
    const logger = {
      child: (more) => loggerFor(invocation, { ...fields, ...more }),
    };
    for (const level of levels) {
      logger[level] = (...args) => {
        let data = { ...fields };
        const texts = [];
        for (const a of args) {
          if (a instanceof Error) texts.push(a.stack ? `${a.name}: ${a.message}` : String(a));
          else if (a !== null && typeof a === 'object') data = Array.isArray(a) ? { ...data, values: a } : { ...data, ...a };
          else texts.push(String(a));
        }
        // Placeholders such as %s and %d are replaced by the arguments that follow.
        let message = texts.shift() ?? '';
        message = message.replace(/%[sdifoOj]/g, (m) => (texts.length > 0 ? texts.shift() : m));
        const line = [level, [message, ...texts].join(' '), plain(data)];
        // One after the other, to keep their order.
        const log = () => sys.call(parts.alive(invocation), 'handler.log', line, false);
        lastLine = lastLine.then(log, log);
        parts.keep(parts.alive(invocation), lastLine);
      };
    }
    return Object.freeze(logger);
  }

  // Returns those fields of a log line that can be encoded as JSON.
  function plain(data) {
    try {
      return JSON.parse(JSON.stringify(data));
    } catch {
      return { unwritable: Object.keys(data) };
    }
  }

  function kvFor(invocation) {
    const ask = (name, ...args) => sys.call(parts.alive(invocation), 'kv.' + name, args, false);
    return Object.freeze({
      get: (store, key) => ask('get', store, key),
      async set(store, key, value, options) {
        const copy = parts.sendable(value);
        if (copy.refused !== undefined) throw new TypeError(`kv.set: the value for "${String(key)}" is not JSON: ${copy.refused}`);
        return ask('set', store, key, copy.value, options ?? {});
      },
      delete: (store, key) => ask('delete', store, key),
      getKeys: (store) => ask('keys', store),
    });
  }

  function contextFor(agent, invocation, call, ns) {
    const own = scopes(invocation);
    return {
      state: own.request.state,
      session: session.target,
      thread: thread.target,
      sessionId: session.target.id,
      callId: invocation,
      agentName: agent.metadata.name,
      current: agent.metadata,
      app: globalThis[Symbol.for('skein.app')]?.state ?? {},
      logger: loggerFor(invocation, { agent: agent.metadata.name }),
      kv: kvFor(invocation),
      waitUntil: own.waitUntil,
      message: call.message,
      skein: parts.stateFor(invocation, ns),
    };
  }

  // ---- input and output -----------------------------------------------------------------------------------

  function named(name, message) {
    const e = new Error(message);
    Object.defineProperty(e, 'name', { value: name, configurable: true });
    return e;
  }

  async function check(schema, value) {
    return schema['~standard'].validate(value);
  }

  const pathOf = (issue) => (issue.path ?? []).map((p) => (p !== null && typeof p === 'object' ? p.key : p));

  // Whether an issue only says that the value has another type than the schema requires.
  const mismatch = (issue) =>
    pathOf(issue).length === 0 &&
    (issue.kind === 'schema' || issue.code === 'invalid_type' || issue.code === 'invalid_union' || /^Expected .* got /.test(issue.message)) &&
    within(issue).length === 0;

  // The issues within an issue, such as those of a union's members, that say more than that the type is wrong.
  const within = (issue) => (Array.isArray(issue.issues) ? issue.issues : Array.isArray(issue.errors) ? issue.errors.flat() : []).filter((i) => !mismatch(i));

  function reasons(issue, above = []) {
    const path = [...above, ...pathOf(issue)];
    const inner = within(issue);
    if (inner.length > 0) return inner.flatMap((i) => reasons(i, path));
    return [path.length === 0 ? issue.message : `${path.join('.')}: ${issue.message}`];
  }

  function explain(issues) {
    const all = issues.flatMap((i) => reasons(i));
    const list = all.slice(0, 10);
    if (all.length > 10) list.push(`and ${all.length - 10} more`);
    return list.join('; ');
  }

  // The value of a message: parsed JSON where it is an object or a list, else its text.
  function readings(text) {
    let json;
    try {
      json = JSON.parse(text);
    } catch {
      return { json: undefined, structured: false };
    }
    return { json, structured: json !== null && typeof json === 'object' };
  }

  // Returns the input that the schema accepts: the message as JSON, as text, or as { message: text }. If it accepts none,
  // the error is the first one that says more than that the type is wrong; else the one for the message as it was sent.
  async function inputOf(agent, text) {
    const { json, structured } = readings(text);
    const schema = agent.schema?.input;
    if (schema === undefined) return structured ? json : text;
    const candidates = json === undefined ? [text, { message: text }] : structured ? [json, text] : [json, text, { message: text }];
    let refused;
    let better;
    for (const value of candidates) {
      const result = await check(schema, value);
      if (result.issues === undefined) return result.value;
      const made = value !== json && value !== text; // { message }: counts only if nothing else is wrong with it
      if (made ? result.issues.every((i) => pathOf(i)[0] === 'message') : !result.issues.every(mismatch)) better ??= result.issues;
      if (value === (structured ? json : text)) refused = result.issues;
    }
    refused = better ?? refused;
    throw named('InvalidInputError', `the message is no input that ${agent.metadata.name} takes: ${explain(refused)}`);
  }

  async function outputOf(agent, value) {
    const schema = agent.schema?.output;
    if (schema === undefined) return value;
    const result = await check(schema, value);
    if (result.issues !== undefined) {
      throw named('InvalidOutputError', `what ${agent.metadata.name} gave is not what its schema says: ${explain(result.issues)}`);
    }
    return result.value;
  }

  function textOf(value) {
    if (value === undefined || value === null) return '';
    if (typeof value === 'string') return value;
    const text = JSON.stringify(value);
    if (text === undefined) throw named('InvalidOutputError', `a ${typeof value} is no answer: give a text, a value that JSON can write, or a stream of texts`);
    return text;
  }

  // The stream of an answer: a ReadableStream, an async iterable, or the result of streamText.
  function streamOf(value) {
    if (value === null || typeof value !== 'object') return undefined;
    if (typeof value[Symbol.asyncIterator] === 'function') return value;
    const inner = value.textStream;
    return inner !== null && typeof inner === 'object' && typeof inner[Symbol.asyncIterator] === 'function' ? inner : undefined;
  }

  async function collect(stream, invocation) {
    const decoder = new TextDecoder();
    let text = '';
    const give = async (piece) => {
      if (piece === '') return;
      text += piece;
      await sys.call(invocation, 'handler.delta', [piece], false);
    };
    for await (const chunk of stream) {
      if (typeof chunk === 'string') await give(chunk);
      else if (chunk instanceof ArrayBuffer || ArrayBuffer.isView(chunk)) await give(decoder.decode(chunk, { stream: true }));
      else if (chunk !== null && typeof chunk === 'object') await give(JSON.stringify(chunk) + '\n');
      else throw named('InvalidOutputError', `a streamed answer is made of texts, bytes and objects, not of ${chunk === null ? 'null' : typeof chunk}`);
    }
    await give(decoder.decode());
    return text;
  }

  async function answerOf(agent, value, invocation) {
    if (value instanceof Object && typeof value.text === 'function' && typeof value.status === 'number') value = await value.text(); // a Response
    const stream = streamOf(value);
    if (stream === undefined) return textOf(await outputOf(agent, value));
    const text = await collect(stream, invocation);
    const { json, structured } = readings(text);
    const schema = agent.schema?.output;
    // The schema describes the whole answer, which may be JSON, or with stream: true its pieces, which are texts.
    if (schema !== undefined && !(structured && (await check(schema, json)).issues === undefined)) await outputOf(agent, text);
    return text;
  }

  // ---- serving --------------------------------------------------------------------------------------------

  function agentOf(ns) {
    const found = ns.default;
    const agent = typeof found === 'function' ? { handler: found } : found;
    if (agent === null || typeof agent !== 'object' || typeof agent.handler !== 'function') {
      throw new TypeError("the module has no handler: export default createAgent('Name', { handler: async (ctx, input) => … })");
    }
    return agent.metadata ? agent : { ...agent, metadata: Object.freeze({ name: agent.name || 'the handler', description: agent.description }) };
  }

  let begun = false;
  async function handle(ns, invocation, call) {
    const agent = agentOf(ns);
    const ctx = contextFor(agent, invocation, call, ns);
    const listeners = agent[listenersOf];
    if (!begun) {
      begun = true;
      if (call.first) await tellApp('thread.created', thread.target);
      await tellApp('session.started', session.target);
    }
    try {
      const input = await inputOf(agent, call.text);
      await tell(listeners, 'started', agent, ctx);
      await tellApp('agent.started', agent, ctx);
      const text = await answerOf(agent, await agent.handler(ctx, input), invocation);
      await tell(listeners, 'completed', agent, ctx);
      await tellApp('agent.completed', agent, ctx);
      return { text };
    } catch (e) {
      await tell(listeners, 'errored', agent, ctx, e);
      await tellApp('agent.errored', agent, ctx, e);
      throw e;
    }
  }

  // The session has ended and is saved: now its listeners run.
  async function completed(invocation) {
    if (session === undefined) return;
    scopes(invocation);
    await tell(session.listeners, 'completed', session.target);
    await tellApp('session.completed', session.target);
  }

  return { serve: (ns, invocation, call) => (call.event === 'completed' ? completed(invocation) : handle(ns, invocation, call)) };
});
