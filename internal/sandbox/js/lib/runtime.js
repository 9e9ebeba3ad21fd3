// The module "@agentuity/runtime": createAgent, which declares a side of an agent that is written in code.
const kind = Symbol.for('skein.kind');
// Listeners of the whole module, and of one agent; handler.js calls them.
const listenersOf = Symbol.for('skein.listeners');

// listening makes a target take listeners for some events, by their names.
function listening(target, events) {
  const listeners = new Map();
  Object.defineProperty(target, listenersOf, { value: listeners });
  return Object.assign(target, {
    addEventListener(event, f) {
      if (typeof f !== 'function') throw new TypeError('addEventListener takes the name of an event and a function');
      if (!events.includes(event)) throw new TypeError(`addEventListener: there is no event "${String(event)}" here: use ${events.join(', ')}`);
      if (!listeners.has(event)) listeners.set(event, new Set());
      listeners.get(event).add(f);
    },
    removeEventListener(event, f) {
      listeners.get(event)?.delete(f);
    },
  });
}

const isSchema = (v) => v !== null && (typeof v === 'object' || typeof v === 'function') && typeof v['~standard']?.validate === 'function';

// createAgent(name, { schema: { input, output, stream }, handler, description, metadata }).
export function createAgent(name, config) {
  if (typeof name !== 'string' || name === '') throw new TypeError("createAgent takes the agent's name and what it is: createAgent('Name', { handler })");
  if (config === null || typeof config !== 'object' || typeof config.handler !== 'function') {
    throw new TypeError(`createAgent('${name}'): give an object with a function named handler`);
  }
  for (const side of ['input', 'output']) {
    const schema = config.schema?.[side];
    if (schema !== undefined && !isSchema(schema)) {
      throw new TypeError(`createAgent('${name}'): schema.${side} is no schema: make it with @agentuity/schema, zod, valibot, or anything else of the standard schema interface`);
    }
  }
  const metadata = Object.freeze({ name, description: config.description, ...config.metadata });
  const agent = listening({ ...config, metadata, inputSchema: config.schema?.input, outputSchema: config.schema?.output }, ['started', 'completed', 'errored']);
  return Object.defineProperty(agent, kind, { value: 'handler' });
}

// Listeners for the events of all agents of this module.
const appEvents = ['thread.created', 'thread.destroyed', 'session.started', 'session.completed', 'agent.started', 'agent.completed', 'agent.errored'];
const app = (globalThis[Symbol.for('skein.app')] ??= listening({ state: {} }, appEvents));
export const addEventListener = app.addEventListener;
export const removeEventListener = app.removeEventListener;

// Skein is the server here, so none is started. What setup returns becomes ctx.app, as in Agentuity.
export async function createApp(config = {}) {
  const state = await config.setup?.();
  if (state !== null && typeof state === 'object') Object.assign(app.state, state);
  return app;
}

export function getThreadProvider() {
  return {
    setThreadIDProvider(provider) {
      const answering = globalThis[Symbol.for('skein.ids')]; // definition.js makes it where a gateway asks for ids
      if (answering === undefined) {
        throw new Error('setThreadIDProvider: a thread has its id before its code runs here: give this code to a ThreadGateway, as spec.idProvider.code');
      }
      if (typeof provider?.getThreadId !== 'function') {
        throw new TypeError('setThreadIDProvider takes an object with the function getThreadId(appState, ctx)');
      }
      answering.ask = async (request) => {
        let id;
        try {
          id = await provider.getThreadId(app.state, contextOf(request));
        } catch (e) {
          if (e?.status === 401 || e?.status === 403) return { refused: true }; // as an HTTPException of hono says it
          throw e;
        }
        if (typeof id !== 'string') throw new TypeError(`getThreadId gave ${id === null ? 'null' : typeof id} and not a string`);
        return { id: id.slice(0, 100) }; // one that is too long is refused
      };
    },
  };
}

// What getThreadId gets as ctx, after the Context of hono: ctx.req, and ctx.get('threadId'), the id that the client has proved.
function contextOf({ method, url, headers, threadId }) {
  const variables = new Map(threadId === '' ? [] : [['threadId', threadId]]);
  const query = () => new URL(url).searchParams;
  let raw;
  const req = {
    method,
    url,
    get path() {
      return new URL(url).pathname;
    },
    get raw() {
      return (raw ??= new Request(url, { method, headers }));
    },
    header: (name) => (name === undefined ? { ...headers } : headers[String(name).toLowerCase()]),
    query: (name) => (name === undefined ? Object.fromEntries(query()) : (query().get(name) ?? undefined)),
    queries: (name) => query().getAll(name),
  };
  return {
    req,
    env: {},
    get: (key) => variables.get(key),
    set: (key, value) => void variables.set(key, value),
    get var() {
      return Object.fromEntries(variables);
    },
  };
}
