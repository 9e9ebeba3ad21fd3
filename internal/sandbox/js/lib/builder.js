// The module "@standardagents/builder": each define function marks its argument with its kind and
// returns it, so that a module's default export tells what it declares.
const kind = Symbol.for('skein.kind');

function mark(name, definition) {
  if (definition === null || typeof definition !== 'object') {
    throw new TypeError(`define${name[0].toUpperCase()}${name.slice(1)} takes an object`);
  }
  return Object.defineProperty({ ...definition }, kind, { value: name });
}

function withExecute(name, definition, ...aliases) {
  const marked = mark(name, definition);
  for (const alias of aliases) {
    if (marked.execute === undefined && typeof marked[alias] === 'function') marked.execute = marked[alias];
  }
  if (typeof marked.execute !== 'function') {
    throw new TypeError(`a ${name} needs a function named execute`);
  }
  return marked;
}

export const defineTool = (definition) => withExecute('tool', definition, 'handler');
export const defineEffect = (definition) => withExecute('effect', definition, 'handler', 'run');

export function defineHook(first, execute) {
  const definition = typeof first === 'string' ? { hook: first, execute } : first;
  return withExecute('hook', definition, 'handler');
}

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

// One handler for all methods, or an object with one for each: { GET(request, state, params) {} }.
export function defineThreadEndpoint(first) {
  const definition = typeof first === 'function' ? { execute: first } : first;
  if (methods.some((m) => typeof definition?.[m] === 'function')) return mark('endpoint', definition);
  return withExecute('endpoint', definition, 'handler');
}

export const defineAgent = (definition) => mark('agent', definition);
export const definePrompt = (definition) => mark('prompt', definition);
export const defineModel = (definition) => mark('model', definition);
