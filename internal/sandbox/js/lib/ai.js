// The module "ai": the part of the AI SDK with which handlers call models. Its calls go to the host, which lets a Model
// object of the namespace answer them (AGT-09).
const hub = () => {
  const models = globalThis[Symbol.for('skein.models')];
  if (models === undefined) throw new Error('models can be asked by the handlers of an agent only: this code is a tool, an effect, a hook or an endpoint');
  return models;
};

// ---- what a call asks ----------------------------------------------------------------------------------

function modelOf(model) {
  if (typeof model === 'string' && model !== '') {
    const at = model.indexOf('/'); // in the gateway's format: provider/model
    return at > 0 ? { provider: model.slice(0, at), model: model.slice(at + 1) } : { provider: '', model };
  }
  if (model !== null && typeof model === 'object' && model.specificationVersion === 'skein') return { provider: model.provider, model: model.modelId };
  throw new TypeError("give the model as openai('name') of '@ai-sdk/openai', or as a text 'provider/name'");
}

function bytesOf(data) {
  if (data instanceof Uint8Array) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof URL || /^https?:/.test(data)) throw new TypeError('an image is given by its bytes or as base64: nothing is fetched from here');
  const text = String(data).replace(/^data:[^,]*,/, '');
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

function imageOf(part) {
  const data = part.image ?? part.data;
  const named = part.mediaType ?? part.mimeType ?? (typeof data === 'string' ? /^data:([^;,]+)/.exec(data)?.[1] : undefined);
  const bytes = bytesOf(data);
  const magic = { 0x89: 'image/png', 0xff: 'image/jpeg', 0x47: 'image/gif', 0x52: 'image/webp' };
  return { mimeType: named && named !== 'image/*' ? named : (magic[bytes[0]] ?? 'image/png'), data: bytes };
}

const jsonText = (v) => (typeof v === 'string' ? v : (JSON.stringify(v) ?? ''));

function resultText(output) {
  if (output !== null && typeof output === 'object' && 'type' in output && 'value' in output) return jsonText(output.value);
  return jsonText(output);
}

// Converts one message to the format of the host. A tool's message becomes one message per result.
function messagesOf(message) {
  const { role, content } = message ?? {};
  if (!['system', 'user', 'assistant', 'tool'].includes(role)) throw new TypeError(`a message has the role system, user, assistant or tool, not ${String(role)}`);
  if (typeof content === 'string') return [{ role, content }];
  if (!Array.isArray(content)) throw new TypeError(`the content of a message is a text or a list of parts`);
  if (role === 'tool') {
    return content.filter((p) => p.type === 'tool-result').map((p) => ({ role, content: resultText(p.output ?? p.result), toolCallId: p.toolCallId, name: p.toolName }));
  }
  const out = { role, content: '', images: [], toolCalls: [], metadata: message.providerMetadata?.skein ?? {} };
  for (const part of content) {
    switch (part.type) {
      case 'text':
        out.content += part.text;
        break;
      case 'image':
        out.images.push(imageOf(part));
        break;
      case 'file':
        if (!String(part.mediaType ?? part.mimeType).startsWith('image/')) throw new TypeError(`files of the type ${part.mediaType ?? part.mimeType} cannot be given to a model here: images can`);
        out.images.push(imageOf(part));
        break;
      case 'tool-call':
        out.toolCalls.push({ id: part.toolCallId, name: part.toolName, arguments: jsonText(part.input ?? part.args ?? {}) });
        break;
      case 'reasoning':
        break;
      default:
        throw new TypeError(`a part of the type ${part.type} cannot be given to a model here`);
    }
  }
  return [out];
}

function conversation({ system, prompt, messages }) {
  if ((prompt === undefined) === (messages === undefined)) throw new TypeError('give either a prompt or messages');
  const given = prompt === undefined ? messages : Array.isArray(prompt) ? prompt : [{ role: 'user', content: prompt }];
  const list = given.flatMap(messagesOf);
  return system === undefined ? list : [{ role: 'system', content: String(system) }, ...list];
}

// ---- schemas ---------------------------------------------------------------------------------------------

const agentuity = Symbol.for('@agentuity/schema-kind');

// Converts a valibot schema to JSON Schema, as far as a model can use it.
function valibotSchema(s) {
  const of = valibotSchema;
  switch (s.type) {
    case 'string':
    case 'boolean':
    case 'number':
    case 'null':
      return { type: s.type, ...described(s) };
    case 'literal':
      return { const: s.literal };
    case 'picklist':
    case 'enum':
      return { enum: [...(s.options ?? Object.values(s.enum))] };
    case 'array':
      return { type: 'array', items: of(s.item), ...described(s) };
    case 'record':
      return { type: 'object', additionalProperties: of(s.value) };
    case 'optional':
    case 'nullish':
    case 'exact_optional':
      return of(s.wrapped);
    case 'nullable':
      return { anyOf: [of(s.wrapped), { type: 'null' }] };
    case 'union':
    case 'variant':
      return { anyOf: s.options.map(of) };
    case 'object':
    case 'strict_object':
    case 'loose_object': {
      const optional = new Set(['optional', 'nullish', 'exact_optional']);
      const required = Object.keys(s.entries).filter((k) => !optional.has(s.entries[k].type));
      const properties = Object.fromEntries(Object.entries(s.entries).map(([k, v]) => [k, of(v)]));
      return { type: 'object', properties, required, additionalProperties: s.type === 'loose_object', ...described(s) };
    }
    case 'any':
    case 'unknown':
      return {};
  }
  throw new TypeError(`a schema of the kind ${s.type} cannot be told to a model`);
}

// Adds what pipes contribute to a schema: descriptions and bounds.
function described(s) {
  const out = {};
  for (const step of s.pipe ?? []) {
    if (step.type === 'description') out.description = step.description;
    else if (step.type === 'integer') out.type = 'integer';
    else if (step.type === 'min_value') out.minimum = step.requirement;
    else if (step.type === 'max_value') out.maximum = step.requirement;
    else if (step.type === 'min_length') out[s.type === 'array' ? 'minItems' : 'minLength'] = step.requirement;
    else if (step.type === 'max_length') out[s.type === 'array' ? 'maxItems' : 'maxLength'] = step.requirement;
  }
  return out;
}

async function jsonSchemaOf(schema) {
  if (schema === null || (typeof schema !== 'object' && typeof schema !== 'function')) throw new TypeError('give a schema');
  if (schema.jsonSchema !== undefined && typeof schema.jsonSchema === 'object') return schema.jsonSchema;
  if ('_zod' in schema) {
    const { $schema, ...rest } = (await import('zod')).toJSONSchema(schema, { unrepresentable: 'any' });
    delete rest['~standard'];
    return rest;
  }
  if (agentuity in schema) return (await import('@agentuity/schema')).toJSONSchema(schema);
  if (schema['~standard']?.vendor === 'valibot') return valibotSchema(schema);
  if (schema['~standard'] === undefined) return schema;
  throw new TypeError(`schemas of ${schema['~standard'].vendor} cannot be told to a model: use zod, valibot, @agentuity/schema, or jsonSchema({ … })`);
}

async function validated(schema, value) {
  const validate = schema?.['~standard']?.validate ?? schema?.validate;
  if (typeof validate !== 'function') return { value };
  const result = await validate(value);
  return result.success === false ? { issues: [{ message: String(result.error?.message ?? result.error) }] } : result;
}

// Returns the messages of a schema's issues, each with its path in the value.
function explain(issues) {
  return issues
    .map((i) => {
      const path = (i.path ?? []).map((p) => (p !== null && typeof p === 'object' ? p.key : p)).join('.');
      return path === '' ? i.message : `${path}: ${i.message}`;
    })
    .join('; ');
}

// Wraps a schema written as JSON Schema.
export const jsonSchema = (schema, { validate } = {}) => ({ jsonSchema: schema, validate });
export const tool = (definition) => definition;
export const stepCountIs = (count) => ({ steps }) => steps.length >= count;
export const hasToolCall = (name) => ({ steps }) => steps.at(-1)?.toolCalls.some((c) => c.toolName === name) ?? false;

// ---- one answer --------------------------------------------------------------------------------------------

export class APICallError extends Error {
  constructor(message) {
    super(message);
    this.name = 'AI_APICallError';
  }
}
export class NoObjectGeneratedError extends Error {
  constructor(message, { text, cause } = {}) {
    super(message, { cause });
    this.name = 'AI_NoObjectGeneratedError';
    this.text = text;
  }
}

const unsupported = ['temperature', 'topP', 'topK', 'presencePenalty', 'frequencyPenalty', 'stopSequences', 'seed', 'maxOutputTokens', 'maxTokens', 'headers', 'providerOptions'];
const warningsOf = (options) =>
  unsupported
    .filter((name) => options[name] !== undefined)
    .map((setting) => ({ type: 'unsupported-setting', setting, details: `${setting} is for the Model object to say` }));

const sumOf = (a, b) => (a === undefined && b === undefined ? undefined : (a ?? 0) + (b ?? 0));
const addUsage = (a, b) => Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((k) => [k, sumOf(a[k], b[k])]));

async function requestOf(options, messages, extra) {
  const tools = [];
  for (const [name, t] of Object.entries(options.tools ?? {})) {
    tools.push({ name, description: t.description ?? '', parameters: await jsonSchemaOf(t.inputSchema ?? t.parameters ?? { type: 'object' }) });
  }
  const choice = options.toolChoice;
  if (choice !== undefined && !['auto', 'none', 'required'].includes(choice)) throw new TypeError('toolChoice is auto, none or required here');
  return { ...modelOf(options.model), messages, tools, toolChoice: choice ?? '', ...extra };
}

// Calls the model, and piece(text, reasoning) for each part of the answer. When a call is repeated, its earlier parts
// are void: again() is called then.
async function answer(request, signal, piece = () => {}, again = () => {}) {
  const models = hub();
  signal?.throwIfAborted();
  const id = await models.call('open', request);
  const close = () => models.call('close', id).catch(() => {});
  signal?.addEventListener('abort', close);
  try {
    for (;;) {
      const next = await models.call('next', id);
      if (next.reset) again();
      if (next.text !== '' || next.reasoning !== '') piece(next.text, next.reasoning);
      if (next.done) return next.answer;
    }
  } catch (e) {
    close();
    signal?.throwIfAborted();
    throw e.name === 'ModelError' ? new APICallError(e.message) : e;
  } finally {
    signal?.removeEventListener('abort', close);
  }
}

// Calls the tools that an answer asks for, as far as they can be called here.
async function callTools(options, toolCalls, messages) {
  const called = await Promise.all(
    toolCalls.map(async (call) => {
      const t = options.tools?.[call.toolName];
      if (t === undefined) return { ...call, output: `there is no tool ${call.toolName}`, failed: true };
      if (typeof t.execute !== 'function') return undefined;
      try {
        const checked = await validated(t.inputSchema ?? t.parameters, call.input);
        if (checked.issues !== undefined) throw new TypeError('invalid arguments: ' + explain(checked.issues));
        return { ...call, output: await t.execute(checked.value, { toolCallId: call.toolCallId, messages, abortSignal: options.abortSignal }) };
      } catch (e) {
        return { ...call, output: String(e?.message ?? e), failed: true };
      }
    }),
  );
  return called.filter((c) => c !== undefined);
}

// Runs the steps of a call: an answer, its tool calls, the next answer, until no tool is asked for or a limit is reached.
async function generate(options, { piece, again, event = () => {}, extra } = {}) {
  const messages = conversation(options);
  const limit = options.stopWhen ?? (options.maxSteps === undefined ? stepCountIs(1) : stepCountIs(options.maxSteps));
  const limits = Array.isArray(limit) ? limit : [limit];
  const steps = [];
  const added = [];
  let totalUsage = {};
  for (;;) {
    const got = await answer(await requestOf(options, [...messages, ...added.flatMap(messagesOf)], extra), options.abortSignal, piece, again);
    const toolCalls = got.toolCalls.map((c) => ({ type: 'tool-call', toolCallId: c.id, toolName: c.name, input: inputOf(c.arguments) }));
    totalUsage = addUsage(totalUsage, got.usage);
    const content = [...(got.text === '' ? [] : [{ type: 'text', text: got.text }]), ...toolCalls];
    // What the model must receive again together with its answer.
    added.push({ role: 'assistant', content, ...(got.metadata ? { providerMetadata: { skein: got.metadata } } : {}) });
    for (const call of toolCalls) event(call);
    const results = await callTools(options, toolCalls, [...messages, ...added]);
    const toolResults = results.map(({ failed, ...r }) => ({ ...r, type: failed ? 'tool-error' : 'tool-result' }));
    for (const r of toolResults) event(r);
    if (results.length > 0) {
      added.push({
        role: 'tool',
        content: results.map((r) => ({
          type: 'tool-result', toolCallId: r.toolCallId, toolName: r.toolName,
          output: { type: r.failed ? 'error-text' : typeof r.output === 'string' ? 'text' : 'json', value: r.output ?? null },
        })),
      });
    }
    const step = {
      text: got.text, reasoningText: got.reasoning || undefined, content, toolCalls, toolResults, finishReason: toolCalls.length > 0 ? 'tool-calls' : got.finishReason,
      usage: got.usage, warnings: warningsOf(options), files: [], sources: [], response: { modelId: got.model, messages: [...added] },
    };
    steps.push(step);
    await options.onStepFinish?.(step);
    const over = toolCalls.length === 0 || results.length < toolCalls.length || limits.some((f) => f({ steps }));
    if (over) return { ...step, steps, totalUsage };
  }
}

function inputOf(text) {
  try {
    return JSON.parse(text === '' ? '{}' : text);
  } catch {
    return text;
  }
}

// ---- generateText, generateObject ------------------------------------------------------------------------

export async function generateText(options) {
  const result = await generate(options);
  await options.onFinish?.(result);
  return result;
}

export async function generateObject(options) {
  const { schema, schemaName, output = 'object' } = options;
  if (output !== 'object' && output !== 'array' && output !== 'no-schema') throw new TypeError(`generateObject: output is object, array or no-schema here, not ${output}`);
  const item = schema === undefined ? { type: 'object' } : await jsonSchemaOf(schema);
  const asked = output === 'array' ? { type: 'object', properties: { elements: { type: 'array', items: item } }, required: ['elements'], additionalProperties: false } : item;
  const result = await generate({ ...options, tools: undefined }, { extra: { schema: asked, schemaName: schemaName ?? '' } });
  let value;
  try {
    value = JSON.parse(result.text);
  } catch (cause) {
    throw new NoObjectGeneratedError('the model gave no JSON', { text: result.text, cause });
  }
  const values = output === 'array' ? value?.elements : [value];
  if (!Array.isArray(values)) throw new NoObjectGeneratedError('the model gave no list of elements', { text: result.text });
  const objects = [];
  for (const v of values) {
    const checked = schema === undefined ? { value: v } : await validated(schema, v);
    if (checked.issues !== undefined) {
      throw new NoObjectGeneratedError('what the model gave is not what the schema says: ' + explain(checked.issues), { text: result.text });
    }
    objects.push(checked.value);
  }
  return { object: output === 'array' ? objects : objects[0], finishReason: result.finishReason, usage: result.totalUsage, warnings: result.warnings, response: result.response };
}

// ---- streamText ----------------------------------------------------------------------------------------------

// The parts received so far, for any number of readers, each of which reads from the beginning.
class Feed {
  #items = [];
  #over = false;
  #error;
  #waiting = [];
  push(item) {
    this.#items.push(item);
    this.#wake();
  }
  end(error) {
    this.#over = true;
    this.#error = error;
    this.#wake();
  }
  #wake() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
  stream(wanted) {
    const feed = this;
    let at = 0;
    return new ReadableStream({
      async pull(controller) {
        for (;;) {
          while (at < feed.#items.length) {
            const item = wanted(feed.#items[at++]);
            if (item !== undefined) return controller.enqueue(item);
          }
          if (feed.#error !== undefined) throw feed.#error;
          if (feed.#over) return controller.close();
          await new Promise((resolve) => feed.#waiting.push(resolve));
        }
      },
    });
  }
}

export function streamText(options) {
  const feed = new Feed();
  let given = '';
  const whole = (async () => {
    const result = await generate(options, {
      piece(text, reasoning) {
        if (reasoning !== '') feed.push({ type: 'reasoning-delta', text: reasoning });
        if (text === '') return;
        given += text;
        const chunk = { type: 'text-delta', text };
        feed.push(chunk);
        options.onChunk?.({ chunk });
      },
      again() {
        if (given !== '') throw new APICallError("the model's answer was cut off after a part of it had been given on");
      },
      event: (e) => feed.push(e),
    });
    await options.onFinish?.(result);
    return result;
  })();
  whole.then(
    (result) => {
      feed.push({ type: 'finish', finishReason: result.finishReason, totalUsage: result.totalUsage });
      feed.end();
    },
    (e) => {
      options.onError?.({ error: e });
      feed.end(e);
    },
  );
  const part = (name) => {
    const p = whole.then((result) => result[name]);
    p.catch(() => {}); // reported by the caller that awaits it, or by the stream
    return p;
  };
  const result = {
    get textStream() {
      return feed.stream((e) => (e.type === 'text-delta' ? e.text : undefined));
    },
    get fullStream() {
      return feed.stream((e) => e);
    },
    consumeStream: () => whole.then(() => {}, () => {}),
    toTextStreamResponse: (init) => new Response(feed.stream((e) => (e.type === 'text-delta' ? e.text : undefined)), { headers: { 'content-type': 'text/plain; charset=utf-8' }, ...init }),
  };
  for (const name of ['text', 'reasoningText', 'content', 'toolCalls', 'toolResults', 'finishReason', 'usage', 'totalUsage', 'warnings', 'steps', 'response', 'files', 'sources']) {
    Object.defineProperty(result, name, { enumerable: true, get: () => part(name) });
  }
  return result;
}
