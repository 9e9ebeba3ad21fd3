// Types of the module "@standardagents/builder" in Skein's sandboxes. `kubectl skein types` prints this file.
// Put it into a TypeScript project with the packages `typescript` and `zod`; compile with "strict". AbortSignal and
// Request come from globals.d.ts or from TypeScript's "dom".
declare module '@standardagents/builder' {
  import type { z } from 'zod';

  // ---- the thread -----------------------------------------------------------------------------------------

  /** One thread, as tools, hooks, effects and endpoints receive it. Times are in microseconds since 1970. */
  export interface ThreadState {
    readonly threadId: string;
    /** The current agent of the thread. */
    readonly agentId: string;
    readonly userId: string | null;
    readonly createdAt: number;
    /** The arguments that the thread was created with; {} without any. */
    readonly arguments: Record<string, unknown>;
    /** The children that continue after their result and have not ended, oldest first. */
    readonly children: SubagentRegistryEntry[];
    /** When the thread was terminated. */
    readonly terminated: number | null;
    /** Temporary data of one execution, shared by its tools and hooks and discarded afterwards. */
    context: Record<string, unknown>;
    /** The run that this code is part of; null outside a run. */
    readonly execution: ExecutionState | null;
    /** State of this call, of the run and of the thread; see docs/state.md. */
    readonly request: { readonly state: StateScope };
    readonly session: { readonly id: string; readonly state: StateScope };
    readonly thread: { readonly id: string; readonly state: ThreadStateScope };
    /** Work that continues after the call has returned; it is saved with the run. */
    waitUntil(work: Promise<unknown> | (() => unknown)): void;
    /** The configuration of the platform team, frozen; undefined without one. Code that uses it cannot be packed. */
    readonly _notPackableRuntimeContext?: { readonly [name: string]: unknown };

    /** Without an order: the newest messages, oldest first. */
    getMessages(options?: GetMessagesOptions): Promise<MessagesResult>;
    getMessage(messageId: string): Promise<Message | null>;
    /** Appends a message; never starts a run. */
    injectMessage(input: MessageInput): Promise<Message>;
    /** Queues a message for the next step; starts a run when none is active. */
    queueMessage(input: MessageInput): Promise<void>;
    /** Like queueMessage, and returns the queued message. */
    sendMessage(input: MessageInput): Promise<Message>;
    /** Merges metadata, and replaces the other fields that are set. */
    updateMessage(messageId: string, updates: MessageUpdates): Promise<Message>;
    deleteMessage(messageId: string): Promise<boolean>;

    writeFile(path: string, data: ArrayBuffer | Uint8Array | string, mimeType?: string, options?: WriteFileOptions): Promise<FileRecord>;
    /** At most 16 MiB; read larger files as streams. */
    readFile(path: string): Promise<ArrayBuffer | null>;
    readFileStream(path: string, options?: ReadFileStreamOptions): Promise<AsyncIterable<FileChunk> | null>;
    statFile(path: string): Promise<FileRecord | null>;
    readdirFile(path: string): Promise<ReaddirResult>;
    unlinkFile(path: string): Promise<void>;
    mkdirFile(path: string): Promise<FileRecord>;
    /** Fails for a folder that is not empty. */
    rmdirFile(path: string): Promise<void>;
    getFileStats(): Promise<FileStats>;
    /** Returns the lines of text files that match an RE2 expression. */
    grepFiles(pattern: string): Promise<GrepResult[]>;
    /** Returns the files that match a glob of *, ** and ?. */
    findFiles(pattern: string): Promise<FindResult>;
    /** Returns null for a file that is not a JPEG, PNG, GIF or WebP image. */
    getFileThumbnail(path: string, options?: ThumbnailOptions): Promise<ArrayBuffer | null>;

    getValue<T = unknown>(key: string): Promise<T | null>;
    /** null and undefined delete the key. */
    setValue(key: string, value: unknown): Promise<void>;

    /** Returns the variable of the first of thread, user, instance, agent and prompt that has it; fails if none has it. */
    env(propertyName: string): Promise<string>;
    envType(propertyName: string): Promise<EnvType>;
    setEnv(propertyName: string, value: string, options?: { type?: EnvType }): Promise<void>;

    loadModel<T = unknown>(name: string): Promise<T>;
    loadPrompt<T = unknown>(name: string): Promise<T>;
    loadAgent<T = unknown>(name: string): Promise<T>;
    getModelNames(): string[];
    getPromptNames(): string[];
    getAgentNames(): string[];

    /** Calls a tool in the run, or starts a run for it. */
    queueTool(toolName: string, args: Record<string, unknown>): void;
    invokeTool(toolName: string, args: Record<string, unknown>): Promise<ToolResult>;

    /** Returns the id of the scheduled effect; the delay is in milliseconds. */
    scheduleEffect(name: string, args: Record<string, unknown>, delay?: number): Promise<string>;
    getScheduledEffects(name?: string): Promise<ScheduledEffect[]>;
    removeScheduledEffect(id: string): Promise<boolean>;

    /** Sends an event to the connected clients; the data must be JSON. */
    emit(event: string, data?: unknown): void;

    /** Runs JavaScript or TypeScript in a separate isolate that has only what the options pass to it. */
    runCode<T = unknown>(source: string, options?: CodeExecutionOptions): CodeExecution<T>;

    getChildThread(referenceId: string): Promise<ThreadState | null>;
    getParentThread(): Promise<ThreadState | null>;
    /** Queues a silent message for the parent. */
    notifyParent(content: string): Promise<void>;
    /** Changes the status of this thread in the parent's registry. */
    setStatus(status: string): Promise<void>;
    /** Terminates the thread and all of its descendants. */
    terminate(): Promise<void>;
  }

  export interface StateScope {
    get<T = unknown>(key: string): T | undefined;
    has(key: string): boolean;
    set(key: string, value: unknown): void;
    /** Returns whether the key existed. */
    delete(key: string): boolean;
    clear(): void;
    /** Appends to an array and keeps its last max elements. */
    push(key: string, value: unknown, max?: number): void;
    keys(): string[];
    values<T = unknown>(): T[];
    entries<T = unknown>(): [string, T][];
    readonly size: number;
  }

  /** Loaded at the first read. Writes without a read are merged into the stored state. */
  export interface ThreadStateScope {
    get<T = unknown>(key: string): Promise<T | undefined>;
    has(key: string): Promise<boolean>;
    set(key: string, value: unknown): Promise<void>;
    delete(key: string): Promise<void>;
    clear(): Promise<void>;
    push(key: string, value: unknown, max?: number): Promise<void>;
    keys(): Promise<string[]>;
    values<T = unknown>(): Promise<T[]>;
    entries<T = unknown>(): Promise<[string, T][]>;
    size(): Promise<number>;
    readonly loaded: boolean;
    readonly dirty: boolean;
  }

  export type Side = 'a' | 'b';

  /** A run. Side b of an ai_human agent is the person. */
  export interface ExecutionState {
    readonly flowId: string;
    readonly currentSide: Side;
    /** The number of model calls so far, in total and by side. */
    readonly stepCount: number;
    readonly sideAStepCount: number;
    readonly sideBStepCount: number;
    readonly stopped: boolean;
    readonly stoppedBy?: Side;
    /** The prompts that led to this call, outermost first. */
    readonly promptPath: string[];
    /** The conversation as the run sees it. Only code that mentions this property receives it. */
    readonly messageHistory: Message[];
    /** Aborted by stop(). A run that is stopped from outside ends its code too. */
    readonly abortSignal: AbortSignal;
    /** Gives the next turn to a side. */
    forceTurn(side: Side): void;
    /** Ends the run once the calls of the current step have their results. */
    stop(): void;
  }

  export interface SubagentRegistryEntry {
    reference: string;
    name: string;
    title?: string;
    description?: string;
    resumable?: boolean;
    blocking?: boolean;
    threadName?: string;
    threadID?: string;
    spawnGroupId?: string;
    createdAt?: number;
    status: string;
    parentCommunication?: 'implicit' | 'explicit';
  }

  // ---- messages -------------------------------------------------------------------------------------------

  export type Role = 'system' | 'user' | 'assistant' | 'tool';

  export interface Message {
    id: string;
    role: Role;
    content: string | null;
    name?: string;
    tool_calls?: ToolCall[];
    tool_call_id?: string;
    created_at: number;
    parent_id?: string;
    depth?: number;
    silent?: boolean;
    metadata?: Record<string, unknown>;
    attachments?: Attachment[];
    status?: 'pending' | 'completed' | 'failed';
    tool_status?: 'success' | 'error';
    reasoning_content?: string;
    /** The messages that this one stands for: a model has summed them up. */
    summary?: { from: string; to: string; messages: number; agent?: string; side?: string; prompt?: string; model?: string; of?: string };
    /** The side of a dual_ai agent that wrote it. */
    side?: Side;
    run_id?: string;
    /** What the model call that wrote it used. */
    usage?: Usage;
  }

  /** Tokens of a model call, and its cost in the currency of the Model's prices. */
  export interface Usage {
    inputTokens: number;
    outputTokens: number;
    cachedTokens?: number;
    cacheWriteTokens?: number;
    reasoningTokens?: number;
    cost?: number;
  }

  export interface ToolCall {
    id: string;
    name: string;
    /** JSON. */
    arguments: string;
  }

  /** A file of the thread that belongs to a message. */
  export interface Attachment {
    path: string;
    name?: string;
    mimeType?: string;
    size?: number;
  }

  export interface GetMessagesOptions {
    /** 100 by default. */
    limit?: number;
    offset?: number;
    /** asc: the oldest messages, oldest first; desc: the newest first. */
    order?: 'asc' | 'desc';
    includeSilent?: boolean;
    maxDepth?: number;
  }

  export interface MessagesResult {
    messages: Message[];
    total: number;
    hasMore: boolean;
  }

  export interface MessageInput {
    id?: string;
    role?: Role;
    content: string;
    name?: string;
    silent?: boolean;
    metadata?: Record<string, unknown>;
    attachments?: Attachment[];
    tool_calls?: ToolCall[];
    tool_call_id?: string;
    tool_status?: 'success' | 'error';
  }

  export interface MessageUpdates {
    content?: string;
    metadata?: Record<string, unknown>;
    status?: 'pending' | 'completed' | 'failed';
    tool_status?: 'success' | 'error';
    silent?: boolean;
  }

  // ---- files ----------------------------------------------------------------------------------------------

  export interface FileRecord {
    path: string;
    name: string;
    mimeType: string;
    storage: string;
    size: number;
    isDirectory: boolean;
    metadata?: Record<string, unknown>;
    width?: number;
    height?: number;
    createdAt: number;
    isChunked: boolean;
    chunkCount: number;
  }

  export interface FileChunk {
    data: Uint8Array;
    /** Counted from 0. */
    index: number;
    totalChunks: number;
    isLast: boolean;
  }

  export interface WriteFileOptions {
    metadata?: Record<string, unknown>;
  }

  export interface ReadFileStreamOptions {
    signal?: AbortSignal;
  }

  export interface ReaddirResult {
    path: string;
    entries: FileRecord[];
  }

  export interface FileStats {
    fileCount: number;
    directoryCount: number;
    totalSize: number;
    maxSize?: number;
    maxEntries?: number;
  }

  export interface GrepResult {
    path: string;
    matches: { line: number; content: string }[];
    truncated?: boolean;
  }

  export interface FindResult {
    paths: string[];
    truncated: boolean;
  }

  export interface ThumbnailOptions {
    width?: number;
    height?: number;
  }

  // ---- tools, effects, code -------------------------------------------------------------------------------

  export type EnvType = 'text' | 'secret';

  /** The result of a tool call: invokeTool returns it, and a tool may return it. */
  export type ToolResult =
    | { status: 'success'; result: string; error?: undefined; attachments?: Attachment[] }
    | { status: 'error'; error: string; result?: undefined; attachments?: Attachment[] };

  export interface ScheduledEffect {
    id: string;
    name: string;
    args: Record<string, unknown>;
    scheduledAt: number;
    createdAt: number;
  }

  export interface CodeExecutionOptions {
    /** The export to call, "default" by default. */
    execute?: { fn?: string; args?: unknown[] };
    /** Modules by bare specifier: export name → function or value. */
    imports?: Record<string, Record<string, unknown>>;
    globals?: Record<string, unknown>;
    /** Relative ES modules: "./a.ts" → source. */
    modules?: Record<string, string>;
    language?: 'typescript' | 'javascript';
    memoryLimitBytes?: number;
    filename?: string;
    report?: (value: any) => void;
  }

  /** The handle of a runCode call: await it for the result. */
  export interface CodeExecution<T = unknown> extends PromiseLike<CodeExecutionResult<T>> {
    readonly running: boolean;
    readonly reports: unknown[];
    terminate(reason?: string): void;
    catch<R = never>(failed?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<CodeExecutionResult<T> | R>;
    finally(f?: (() => void) | null): Promise<CodeExecutionResult<T>>;
  }

  export type CodeExecutionResult<T = unknown> = CodeExecutionReport &
    (
      | { status: 'success'; result: T; error?: undefined }
      | { status: 'error' | 'link_error' | 'memory' | 'terminated'; result?: undefined; error: CodeExecutionError }
    );

  /** The fields of every result of runCode, whatever its status. */
  export interface CodeExecutionReport {
    reports: unknown[];
    logs: { level: string; message: string; time: Date }[];
    durationMs: number;
    memoryUsedBytes?: number;
  }

  export interface CodeExecutionError {
    name: string;
    message: string;
    stack?: string;
    specifier?: string;
    line?: number;
    column?: number;
  }

  // ---- definitions ----------------------------------------------------------------------------------------

  type Awaitable<T> = T | Promise<T>;

  /** A zod schema, an object of zod schemas, or a JSON Schema. */
  export type ArgsSchema = z.ZodType | { [name: string]: z.ZodType } | { type: 'object'; [keyword: string]: unknown };

  export type ArgsOf<A> = A extends z.ZodType
    ? z.output<A>
    : A extends { [name: string]: z.ZodType }
      ? { [K in keyof A]: z.output<A[K]> }
      : any; // a JSON Schema, here or in the manifest: the compiler cannot tell what it allows

  /** A result as code may return it: a value that is not a text becomes JSON. */
  export type ToolOutcome =
    | { status: 'success'; result?: unknown; error?: undefined; attachments?: ToolAttachment[] }
    | { status: 'error'; error: string; result?: unknown; attachments?: ToolAttachment[] };

  /** A result, or any other JSON value, which is a success. */
  export type ToolReturn =
    | ToolOutcome
    | { status?: never; [key: string]: unknown }
    | unknown[]
    | string
    | number
    | boolean
    | null
    | undefined
    | void;

  /** A file of the thread, or content that becomes one. */
  export type ToolAttachment = { path: string; name?: string } | { name: string; mimeType?: string; data: Uint8Array | string };

  /** The function of a definition, which may have either name. */
  type Executable<F> = { execute: F; handler?: undefined } | { handler: F; execute?: undefined };

  export type ToolDefinition<A = undefined> = { description: string; args?: A } & Executable<
    (state: ThreadState, args: ArgsOf<A>) => Awaitable<ToolReturn>
  >;

  export type EffectDefinition<A = undefined> = { description?: string; args?: A } & Executable<
    (state: ThreadState, args: ArgsOf<A>) => Awaitable<unknown>
  >;

  export function defineTool<A extends ArgsSchema | undefined = undefined>(definition: ToolDefinition<A>): ToolDefinition<A>;
  export function defineEffect<A extends ArgsSchema | undefined = undefined>(definition: EffectDefinition<A>): EffectDefinition<A>;

  /** The data that each hook receives after the state and may return changed; returning nothing leaves it unchanged. */
  export interface HookSignatures {
    after_thread_created(state: ThreadState): Awaitable<void>;
    after_subagent_created(state: ThreadState, child: SubagentRegistryEntry): Awaitable<void>;
    after_system_message(state: ThreadState, message: { role: 'system'; content: string }): Awaitable<void>;
    /** Only messages that were received may be returned. */
    filter_messages(state: ThreadState, messages: Message[]): Awaitable<Message[] | null | undefined>;
    /** The messages that the model will read; a hook may add messages. */
    prefilter_llm_history(state: ThreadState, history: HistoryMessage[]): Awaitable<HistoryMessage[] | null | undefined>;
    before_create_message(state: ThreadState, message: Message): Awaitable<Partial<Message> | null | undefined | void>;
    after_create_message(state: ThreadState, message: Message): Awaitable<void>;
    before_update_message(state: ThreadState, messageId: string, updates: MessageUpdates): Awaitable<MessageUpdates | null | undefined | void>;
    after_update_message(state: ThreadState, message: Message): Awaitable<void>;
    before_store_tool_result(state: ThreadState, call: HookToolCall, result: StoredResult): Awaitable<ToolOutcome | string | null | undefined | void>;
    after_tool_call_success(state: ThreadState, call: HookToolCall, result: StoredResult): Awaitable<void>;
    after_tool_call_failure(state: ThreadState, call: HookToolCall, result: StoredResult): Awaitable<void>;
  }

  export type HookName = keyof HookSignatures;

  export interface HistoryMessage {
    role: Role;
    content: string | null;
    name?: string;
    tool_calls?: ToolCall[];
    tool_call_id?: string;
    attachments?: string[];
    metadata?: Record<string, unknown>;
  }

  export interface HookToolCall {
    id: string;
    name: string;
    arguments: unknown;
  }

  /** A result and the id of the message that contains it. */
  export type StoredResult = ToolResult & { messageId: string };

  export interface HookDefinition<N extends HookName = HookName> {
    hook: N;
    id?: string;
    description?: string;
    execute: HookSignatures[N];
  }

  export function defineHook<N extends HookName>(definition: HookDefinition<N>): HookDefinition<N>;
  export function defineHook<N extends HookName>(hook: N, execute: HookSignatures[N]): HookDefinition<N>;

  // ---- endpoints ------------------------------------------------------------------------------------------

  /** A request to a thread's endpoint. Its body is null for GET and HEAD; there is no formData() or blob(). */
  export interface ThreadRequest extends Request {
    /** The caller, as Kubernetes authenticated it. */
    readonly user: { readonly name: string };
    clone(): ThreadRequest;
  }

  /** The thread of an endpoint. A request is not part of a run. */
  export interface ThreadEndpointState extends ThreadState {
    readonly execution: null;
  }

  /** The segments of the path by name; params['*'] has those that [*] matched, joined by "/". */
  export type ThreadEndpointParams = Record<string, string>;

  /**
   * Gives a Response. A text, bytes or any other value that JSON has are one with status 200, nothing is 204; streams and
   * iterators go into a Response.
   */
  export type ThreadEndpointHandler<P extends ThreadEndpointParams = ThreadEndpointParams> = (
    request: ThreadRequest,
    state: ThreadEndpointState,
    params: P,
  ) => unknown;

  export type ThreadEndpointMethod = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';

  type MethodHandlers<P extends ThreadEndpointParams> = { [M in ThreadEndpointMethod]?: ThreadEndpointHandler<P> };
  type OneMethod<P extends ThreadEndpointParams> = {
    [M in ThreadEndpointMethod]: { [K in M]: ThreadEndpointHandler<P> };
  }[ThreadEndpointMethod];

  /** A function for each method, or execute for methods without one. The function for GET also answers HEAD. */
  export type ThreadEndpointDefinition<P extends ThreadEndpointParams = ThreadEndpointParams> = {
    description?: string;
  } & MethodHandlers<P> &
    (Executable<ThreadEndpointHandler<P>> | OneMethod<P>);

  export function defineThreadEndpoint<P extends ThreadEndpointParams = ThreadEndpointParams>(
    handler: ThreadEndpointHandler<P>,
  ): { execute: ThreadEndpointHandler<P> };
  export function defineThreadEndpoint<P extends ThreadEndpointParams = ThreadEndpointParams>(
    definition: ThreadEndpointDefinition<P>,
  ): ThreadEndpointDefinition<P>;

  // The results of these three functions are marked with their kind; a manifest declares them to the cluster.
  export function defineAgent<const D extends object>(definition: D): D;
  export function definePrompt<const D extends object>(definition: D): D;
  export function defineModel<const D extends object>(definition: D): D;
}
