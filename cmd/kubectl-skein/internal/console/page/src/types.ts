// The shapes of what the console reads. Those of the runtime API are described in docs/reference/api.md; only the fields that the page uses are
// here. Times of the runtime API are microseconds since 1970, those of the console's own API milliseconds.

/** A Kubernetes Status object: the form of every error. */
export interface Status {
  kind: "Status";
  message?: string;
  reason?: string;
  code?: number;
}

/** The viewer, and the cluster that they look at. */
export interface Session {
  cluster: string;
  context: string;
  user: string;
  namespace: string;
  version: string;
}

export interface Namespaces {
  namespaces: string[];
  /** False when the viewer may not list namespaces. */
  complete: boolean;
}

export type Right = "send" | "stop" | "continue" | "fork" | "approve" | "effects" | "conversation" | "files";

export interface Rights {
  rights: Record<Right, boolean>;
  /** What a right that is false would take, for people. */
  missing?: Partial<Record<Right, string>>;
}

export type ThreadState = "Pending" | "NotReady" | "Idle" | "Running" | "Waiting" | "Parked" | "Terminated" | "Deleting";

/** Why a thread does not go on. */
export interface Blocker {
  reason: string;
  message: string;
  needsPerson: boolean;
}

/** A thread as the list shows it. */
export interface ThreadRow {
  namespace: string;
  name: string;
  id: string;
  title: string;
  agent: string;
  user: string;
  state: ThreadState;
  waits: Blocker | null;
  outcome: string;
  reason: string;
  messages: number;
  queued: number;
  parent: string;
  reference: string;
  archived: boolean;
  active: number;
  created: number;
}

/** A ScheduledEffect as the list shows it. */
export interface EffectRow {
  namespace: string;
  name: string;
  uid: string;
  thread: string;
  does: string;
  schedule: string;
  next: number;
  last: number;
  outcome: string;
  phase: string;
  suspended: boolean;
  ended: boolean;
  active: number;
  ready: boolean;
  reason: string;
  message: string;
  created: number;
}

/** One message of the stream of lists. */
export interface LiveMessage {
  kind: "threads" | "effects";
  reset?: boolean;
  synced?: boolean;
  items?: (ThreadRow | EffectRow)[];
  deleted?: string[];
  error?: { reason: string; message: string };
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Attachment {
  path: string;
  name?: string;
  mimeType?: string;
  size?: number;
}

export interface Message {
  id: string;
  role: "system" | "user" | "assistant" | "tool";
  content: string | null;
  name?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  tool_status?: string;
  created_at: number;
  depth: number;
  silent?: boolean;
  metadata?: Record<string, unknown>;
  attachments?: Attachment[];
  status?: string;
  reasoning_content?: string;
  side?: string;
  run_id?: string;
  summary?: { messages: number; model?: string } | null;
}

export interface MessageList {
  messages: Message[];
  total: number;
  hasMore: boolean;
}

export type RunStatus = "running" | "waiting" | "succeeded" | "failed" | "stopped" | "terminated";

export interface RunUsage {
  inputTokens?: number;
  outputTokens?: number;
  cost?: number;
  turns?: number;
}

export interface Run {
  id: string;
  agent: string;
  status: RunStatus;
  reason?: string;
  message?: string;
  steps: number;
  startedAt: number;
  endedAt?: number;
  usage?: RunUsage;
}

export interface RunList {
  runs: Run[];
  hasMore: boolean;
}

export interface ThreadRecord {
  threadId: string;
  agentId: string;
  userId: string | null;
  title?: string;
  createdAt: number;
  lastActivityAt?: number;
  originThreadID?: string;
  parentId?: string;
  terminated: number | null;
  terminatedReason?: string;
  parked?: boolean;
  v: number;
  messageCount: number;
  queuedCount: number;
  queuedMessages?: Message[];
  lastEvent: number;
  lastRun: Run | null;
}

/** The value of a thread that the page observes. */
export interface ObservedThread {
  thread: ThreadRecord;
  messages?: Message[];
  state?: Record<string, unknown>;
  values?: Record<string, unknown>;
}

/** One entry of a thread's log. */
export interface ThreadEvent {
  seq: number;
  type: string;
  runId?: string;
  messageId?: string;
  data?: any;
  createdAt: number;
}

export interface Usage {
  threads: number;
  runs: number;
  turns: number;
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  reasoningTokens: number;
  cost: number;
  durationMs: number;
}

export interface FileRecord {
  path: string;
  name: string;
  mimeType?: string;
  size: number;
  isDirectory: boolean;
  createdAt: number;
  width?: number;
  height?: number;
}

export interface FileList {
  files: FileRecord[];
  hasMore: boolean;
}

export interface Approval {
  toolCallId: string;
  runId?: string;
  name: string;
  arguments?: string;
  requestedAt?: number;
  expiresAt?: number;
  decision?: Decided | null;
}

/** What was decided about a call. */
export interface Decided {
  approved: boolean;
  by?: string;
  expired?: boolean;
}

export interface ApprovalList {
  approvals: Approval[];
  hasMore: boolean;
}

export interface Firing {
  due: number;
  threadId?: string;
  thread?: string;
  origin?: string;
  status: string;
  attempts: number;
  error?: string;
  waiting?: string;
  firedAt: number;
  startedAt?: number;
  endedAt?: number;
  cost?: number;
}

export interface SkippedFirings {
  due: number;
  until: number;
  count: number;
  threadId?: string;
  reason: string;
  detail?: string;
}

export interface FiringList {
  firings: Firing[];
  skipped?: SkippedFirings[];
  next?: number[];
  hasMore: boolean;
  continue?: string;
}
