// Types of the modules for handlers of agents: "@agentuity/runtime", the part of "ai" with which they call models, and
// the modules of "@ai-sdk". `kubectl skein types --handlers` prints this file. Put it beside the output of
// `kubectl skein types`; "@agentuity/schema" and "valibot" have their own types.
declare module '@agentuity/runtime' {
  import type { Message, StateScope, ThreadState, ThreadStateScope } from '@standardagents/builder';

  /** A schema of @agentuity/schema, zod, valibot, or any other library with the Standard Schema interface. */
  export interface Schema<In = any, Out = any> {
    readonly '~standard': {
      readonly version: 1;
      readonly vendor: string;
      readonly validate: (value: unknown, ...rest: any[]) => any;
      readonly types?: { readonly input: In; readonly output: Out } | undefined;
    };
  }
  export type OutputOf<S> = S extends { readonly '~standard': { readonly types?: infer T } } ? NonNullable<T> extends { readonly output: infer O } ? O : unknown : unknown;
  export type InputOf<S> = S extends { readonly '~standard': { readonly types?: infer T } } ? NonNullable<T> extends { readonly input: infer I } ? I : unknown : unknown;

  type Listener<Event extends string, Args extends unknown[]> = (event: Event, ...args: Args) => unknown;

  export interface Session {
    /** The id of the run: sess_…. */
    readonly id: string;
    readonly state: StateScope;
    readonly thread: Thread;
    /** Called when the run has ended and its state is saved. */
    addEventListener(event: 'completed', listener: Listener<'completed', [session: Session]>): void;
    removeEventListener(event: 'completed', listener: Listener<'completed', [session: Session]>): void;
  }
  export interface Thread {
    /** The id of the conversation: thrd_…. */
    readonly id: string;
    readonly state: ThreadStateScope;
    /** Returns whether thread state is empty. */
    empty(): Promise<boolean>;
    /** Clears thread state at once, and the conversation when the answer is stored. */
    destroy(): Promise<void>;
    addEventListener(event: 'destroyed', listener: Listener<'destroyed', [thread: Thread]>): void;
    removeEventListener(event: 'destroyed', listener: Listener<'destroyed', [thread: Thread]>): void;
  }
  /** Lines go into the thread's log, with secrets removed. */
  export interface Logger {
    trace(message: unknown, ...args: unknown[]): void;
    debug(message: unknown, ...args: unknown[]): void;
    info(message: unknown, ...args: unknown[]): void;
    warn(message: unknown, ...args: unknown[]): void;
    error(message: unknown, ...args: unknown[]): void;
    fatal(message: unknown, ...args: unknown[]): void;
    child(fields: Record<string, unknown>): Logger;
  }
  export type KVResult<T> = { readonly exists: true; readonly data: T; readonly contentType: string; readonly expiresAt?: string } | { readonly exists: false; readonly data?: never };
  /** The key-values of the namespace, in stores by name. */
  export interface KeyValueStorage {
    get<T = unknown>(store: string, key: string): Promise<KVResult<T>>;
    /** ttl is in seconds; without one the value does not expire. */
    set(store: string, key: string, value: unknown, options?: { ttl?: number | null }): Promise<void>;
    delete(store: string, key: string): Promise<void>;
    getKeys(store: string): Promise<string[]>;
  }

  export interface AgentContext {
    /** The state of this call. */
    readonly state: StateScope;
    readonly session: Session;
    readonly thread: Thread;
    readonly sessionId: string;
    /** Identifies this call: a repetition after a crash has the same. */
    readonly callId: string;
    readonly agentName: string;
    readonly current: AgentMetadata;
    readonly app: Record<string, unknown>;
    readonly logger: Logger;
    readonly kv: KeyValueStorage;
    /** Work that continues after the answer, for at most a minute. */
    waitUntil(work: Promise<unknown> | (() => unknown)): void;
    /** The message to answer. */
    readonly message: Message | null;
    /** The thread as tools see it. */
    readonly skein: ThreadState;
  }

  export interface AgentMetadata {
    readonly name: string;
    readonly description?: string;
    readonly [key: string]: unknown;
  }
  type Stream = AsyncIterable<unknown> | { readonly textStream: AsyncIterable<string> };
  type Answer<O> = O | Stream | Promise<O | Stream>;

  export interface Agent<I, O> {
    readonly metadata: AgentMetadata;
    readonly handler: (ctx: AgentContext, input: any) => Answer<O>;
    addEventListener(event: 'started' | 'completed', listener: Listener<'started' | 'completed', [agent: Agent<I, O>, ctx: AgentContext]>): void;
    addEventListener(event: 'errored', listener: Listener<'errored', [agent: Agent<I, O>, ctx: AgentContext, error: unknown]>): void;
    removeEventListener(event: 'started' | 'completed' | 'errored', listener: (...args: any[]) => unknown): void;
  }
  export interface AgentConfig<I extends Schema | undefined, O extends Schema | undefined> {
    description?: string;
    metadata?: Record<string, unknown>;
    schema?: { input?: I; output?: O; stream?: boolean };
    handler: (ctx: AgentContext, input: I extends Schema ? OutputOf<I> : any) => Answer<O extends Schema ? InputOf<O> : unknown>;
  }
  /** Declares a side of an agent; it is the module's default export. */
  export function createAgent<I extends Schema | undefined = undefined, O extends Schema | undefined = undefined>(name: string, config: AgentConfig<I, O>): Agent<I, O>;

  export type AppEvent = 'thread.created' | 'thread.destroyed' | 'session.started' | 'session.completed' | 'agent.started' | 'agent.completed' | 'agent.errored';
  export function addEventListener(event: AppEvent, listener: (event: AppEvent, ...args: any[]) => unknown): void;
  export function removeEventListener(event: AppEvent, listener: (event: AppEvent, ...args: any[]) => unknown): void;
  /** Does not start a server, because Skein is the server; ctx.app has what setup returns. */
  export function createApp(config?: { setup?: () => unknown }): Promise<{ readonly state: Record<string, unknown> }>;

  export type AppState = Record<string, unknown>;
  export type Env<State = AppState> = { Variables: { threadId?: string } };
  /** What getThreadId gets: the part of hono's Context that there is at a gateway. */
  export interface IDContext {
    readonly req: {
      readonly method: string;
      readonly url: string;
      readonly path: string;
      readonly raw: { readonly method: string; readonly url: string; readonly headers: { get(name: string): string | null; has(name: string): boolean } };
      /** Only headers that the ThreadGateway lists are there. */
      header(name: string): string | undefined;
      header(): Record<string, string>;
      query(name: string): string | undefined;
      query(): Record<string, string>;
      queries(name: string): string[];
    };
    readonly env: Record<string, never>;
    /** The id that the client has proved to have. */
    get(key: 'threadId'): string | undefined;
    get(key: string): unknown;
    set(key: string, value: unknown): void;
    readonly var: Record<string, unknown>;
  }
  export interface ThreadIDProvider {
    /** Returns thrd_, and letters and digits up to 32 to 64 characters in all. */
    getThreadId(appState: AppState, ctx: IDContext): string | Promise<string>;
  }
  /** For the code of a ThreadGateway's idProvider; elsewhere setThreadIDProvider throws. */
  export function getThreadProvider(): { setThreadIDProvider(provider: ThreadIDProvider): void };
}

declare module 'ai' {
  import type { InputOf, OutputOf } from '@agentuity/runtime';

  /** A name of handler.models: of a module of "@ai-sdk", or 'provider/name'. */
  export type LanguageModel = string | { readonly specificationVersion: 'skein'; readonly provider: string; readonly modelId: string };
  export type ImageData = Uint8Array | ArrayBuffer | string;
  export type Part =
    | { type: 'text'; text: string }
    | { type: 'image'; image: ImageData; mediaType?: string }
    | { type: 'file'; data: ImageData; mediaType: string }
    | { type: 'reasoning'; text: string }
    | { type: 'tool-call'; toolCallId: string; toolName: string; input: unknown }
    | { type: 'tool-result'; toolCallId: string; toolName: string; output: unknown };
  export interface ModelMessage {
    role: 'system' | 'user' | 'assistant' | 'tool';
    content: string | Part[];
  }
  export interface LanguageModelUsage {
    readonly inputTokens?: number;
    readonly outputTokens?: number;
    readonly totalTokens?: number;
    readonly cachedInputTokens?: number;
    readonly reasoningTokens?: number;
  }
  export type FinishReason = 'stop' | 'length' | 'tool-calls' | (string & {});
  export interface Warning {
    readonly type: 'unsupported-setting';
    readonly setting: string;
    readonly details: string;
  }
  export interface ToolCall {
    readonly type: 'tool-call';
    readonly toolCallId: string;
    readonly toolName: string;
    readonly input: unknown;
  }
  export interface ToolResult {
    readonly type: 'tool-result' | 'tool-error';
    readonly toolCallId: string;
    readonly toolName: string;
    readonly input: unknown;
    readonly output: unknown;
  }
  type AnySchema = { readonly '~standard': any } | { readonly jsonSchema: object };
  export interface Tool<S extends AnySchema = any> {
    description?: string;
    inputSchema?: S;
    execute?: (input: S extends { readonly '~standard': any } ? OutputOf<S> : any, options: { toolCallId: string; messages: ModelMessage[]; abortSignal?: AbortSignal }) => unknown;
  }
  export function tool<S extends AnySchema>(definition: Tool<S>): Tool<S>;
  export function jsonSchema(schema: object, options?: { validate?: (value: unknown) => unknown }): { readonly jsonSchema: object };
  export type StopCondition = (options: { steps: Step[] }) => boolean;
  export function stepCountIs(count: number): StopCondition;
  export function hasToolCall(toolName: string): StopCondition;

  export interface Step {
    readonly text: string;
    readonly reasoningText?: string;
    readonly content: Part[];
    readonly toolCalls: ToolCall[];
    readonly toolResults: ToolResult[];
    readonly finishReason: FinishReason;
    readonly usage: LanguageModelUsage;
    readonly warnings: Warning[];
    readonly response: { readonly modelId: string; readonly messages: ModelMessage[] };
  }
  export interface CallOptions {
    model: LanguageModel;
    system?: string;
    prompt?: string | ModelMessage[];
    messages?: ModelMessage[];
    tools?: Record<string, Tool>;
    toolChoice?: 'auto' | 'none' | 'required';
    /** The default is one step. */
    stopWhen?: StopCondition | StopCondition[];
    abortSignal?: AbortSignal;
    onStepFinish?: (step: Step) => unknown;
    /** The Model sets these; if set here, they only cause warnings. */
    temperature?: number;
    topP?: number;
    seed?: number;
    stopSequences?: string[];
    maxOutputTokens?: number;
    /** The Model sets the retries too. */
    maxRetries?: number;
  }
  export interface GenerateTextResult extends Step {
    readonly steps: Step[];
    readonly totalUsage: LanguageModelUsage;
  }
  export function generateText(options: CallOptions & { onFinish?: (result: GenerateTextResult) => unknown }): Promise<GenerateTextResult>;

  export interface StreamTextResult {
    readonly textStream: AsyncIterable<string> & ReadableStream<string>;
    readonly fullStream: AsyncIterable<{ readonly type: string; readonly text?: string; readonly [key: string]: unknown }>;
    readonly text: Promise<string>;
    readonly reasoningText: Promise<string | undefined>;
    readonly toolCalls: Promise<ToolCall[]>;
    readonly toolResults: Promise<ToolResult[]>;
    readonly steps: Promise<Step[]>;
    readonly finishReason: Promise<FinishReason>;
    readonly usage: Promise<LanguageModelUsage>;
    readonly totalUsage: Promise<LanguageModelUsage>;
    readonly warnings: Promise<Warning[]>;
    readonly response: Promise<Step['response']>;
    consumeStream(): Promise<void>;
    toTextStreamResponse(init?: { status?: number; headers?: Record<string, string> }): Response;
  }
  export function streamText(
    options: CallOptions & {
      onChunk?: (event: { chunk: { type: 'text-delta'; text: string } }) => unknown;
      onFinish?: (result: GenerateTextResult) => unknown;
      onError?: (event: { error: unknown }) => unknown;
    },
  ): StreamTextResult;

  type Objects<S, K> = K extends 'array' ? (S extends { readonly '~standard': any } ? OutputOf<S> : unknown)[] : S extends { readonly '~standard': any } ? OutputOf<S> : unknown;
  export function generateObject<S extends AnySchema | undefined = undefined, K extends 'object' | 'array' | 'no-schema' = 'object'>(
    options: Omit<CallOptions, 'tools' | 'toolChoice' | 'stopWhen'> & { schema?: S; schemaName?: string; output?: K },
  ): Promise<{ readonly object: Objects<S, K>; readonly finishReason: FinishReason; readonly usage: LanguageModelUsage; readonly warnings: Warning[]; readonly response: Step['response'] }>;

  /** A model failed. */
  export class APICallError extends Error {}
  export class NoObjectGeneratedError extends Error {
    readonly text?: string;
  }
}

declare module '@ai-sdk/openai' {
  import type { LanguageModel } from 'ai';
  type Model = (name: string) => Exclude<LanguageModel, string>;
  export interface Provider extends Model {
    readonly languageModel: Model;
    readonly chat: Model;
    readonly responses: Model;
    readonly completion: Model;
    readonly messages: Model;
  }
  export const openai: Provider;
  export function createOpenAI(): Provider;
  export default openai;
}
declare module '@ai-sdk/anthropic' {
  import type { Provider } from '@ai-sdk/openai';
  export const anthropic: Provider;
  export function createAnthropic(): Provider;
  export default anthropic;
}
declare module '@ai-sdk/google' {
  import type { Provider } from '@ai-sdk/openai';
  export const google: Provider;
  export function createGoogleGenerativeAI(): Provider;
  export default google;
}
