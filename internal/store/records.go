package store

import "encoding/json"

// Thread is the record of one conversation.
type Thread struct {
	ID        string // UUID: the UID of the object that it was created for
	ObjectUID string // UID of the Thread object that adopted it, if one did; see OwnerUID
	Namespace string
	Name      string // of the Thread object
	Agent     string // the current agent
	// Threadless marks a record that stands for an object whose code runs without a thread. It is never stored.
	Threadless bool
	// Kind is the kind of that object; empty for a ScheduledEffect.
	Kind string
	// OriginAgent is the agent that the thread was created with. DeclaredAgent is the one that the spec of its object
	// named when the spec was last followed (AGT-03). The store fills in both.
	OriginAgent   string
	DeclaredAgent string
	UserID        string
	TaskID        string
	Title         string
	Arguments     json.RawMessage // an object; nil when absent
	CreatedAt     int64

	ParentID  string // id of the parent thread
	Reference string // name of the Subagent object, which identifies the child within its parent
	RootID    string // id of the outermost ancestor; the thread's own id when it has no parent
	Depth     int    // 0 for a root
	Child     *Child // how the child relates to its parent; nil for a root

	// ScopedEnv are the sorted names of variables that the thread does not inherit, because its agent graph marks them
	// as scoped (ENV-04).
	ScopedEnv []string

	OriginID  string // id of the thread that this one was forked from; "" when it was not (REL-02)
	ForkIndex int64  // index of the last message that the fork inherited

	TerminatedAt     int64
	TerminatedReason string // a reason of api/v1alpha1/conditions.go
	RegistryStatus   string // what the parent's registry shows (SUB-05); "" for a root

	ArchivedAt int64 // 0 while it is not archived (THR-08)
	Fields     Fields

	DestroyedAt     int64  // when the conversation was last cleared (THR-06)
	DestroyedReason string // DestroyedExplicit or DestroyedExpired
	IdleExpiry      int64  // in microseconds; 0 = never (THR-07)
	RetainedAt      int64  // since when it has had no Thread object (THR-09)
	Deleting        bool   // its object was deleted, and it is about to be purged or retained: nobody works on it
	NamespaceUID    string // of the namespace whose the retained data is; "" when it is not known, or not retained
	Waits           string // for room in a quota of its namespace, for people; "" when it does not (K8S-11)
	Parked          bool   // inbox items wait until a user's message or Continue (MSG-08)

	Version        int64 // grows by one with each committed change (THR-11)
	Messages       int64 // stored messages
	Queued         int64 // inbox items that are messages
	LastActivityAt int64
	LastSeq        int64 // the newest sequence number of the log
	Appended       int64 // messages ever stored, deleted ones included
	UserActivityAt int64 // creation time of the newest message with the role user; 0 when there is none
	Diff           DiffStats
}

// OwnedBy returns the kind of the object that the record stands for: Thread, or another for code that runs without a
// thread.
func (t *Thread) OwnedBy() string {
	switch {
	case !t.Threadless:
		return "Thread"
	case t.Kind != "":
		return t.Kind
	}
	return "ScheduledEffect"
}

// OwnerUID returns the UID of the Thread object that the thread belongs to, or last belonged to.
func (t *Thread) OwnerUID() string {
	if t.ObjectUID != "" {
		return t.ObjectUID
	}
	return t.ID
}

// HeldBy reports whether the thread belongs to the Thread object with this UID.
func (t *Thread) HeldBy(uid string) bool { return t.RetainedAt == 0 && t.OwnerUID() == uid }

// Within reports whether the thread belongs to the namespace with a UID. Retained data does not pass to a new namespace
// with the name of its own (THR-09).
func (t *Thread) Within(namespaceUID string) bool {
	return t.RetainedAt == 0 || t.NamespaceUID == "" || namespaceUID == "" || t.NamespaceUID == namespaceUID
}

// ReasonPurged is the TerminatedReason of a thread that is being purged.
const ReasonPurged = "Purged"

// Reasons of EventDestroyed and of Thread.DestroyedReason.
const (
	DestroyedExplicit = "explicit"
	DestroyedExpired  = "expired"
)

// Child is what a child thread knows about its creation.
type Child struct {
	Name                string `json:"name"`
	Blocking            bool   `json:"blocking,omitempty"`
	Resumable           bool   `json:"resumable,omitempty"`
	ParentCommunication string `json:"parentCommunication,omitempty"` // implicit or explicit
	SpawnGroupID        string `json:"spawnGroupId,omitempty"`
	ToolCallID          string `json:"toolCallId,omitempty"` // the parent's call that waits for it
}

// Role is the role of a message.
type Role string

// The roles (MSG-01).
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one message of a conversation (MSG-01).
type Message struct {
	ID               string          `json:"id"`
	Seq              int64           `json:"-"` // order within the thread, assigned by the store
	Role             Role            `json:"role"`
	Content          *string         `json:"content"`
	Name             string          `json:"name,omitempty"`
	ToolCalls        []ToolCall      `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
	CreatedAt        int64           `json:"created_at"`
	ParentID         string          `json:"parent_id,omitempty"`
	Depth            int             `json:"depth,omitempty"`
	Silent           bool            `json:"silent,omitempty"`
	Metadata         map[string]any  `json:"metadata,omitempty"`
	Attachments      []Attachment    `json:"attachments,omitempty"`
	Status           MessageStatus   `json:"status,omitempty"`
	ToolStatus       string          `json:"tool_status,omitempty"` // success or error, on results
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Side             string          `json:"side,omitempty"` // side of a dual_ai agent that wrote it: a or b (AGT-02)
	RunID            string          `json:"run_id,omitempty"`
	Usage            json.RawMessage `json:"usage,omitempty"`   // of the model call that produced it
	Summary          *Summary        `json:"summary,omitempty"` // of the messages that it stands for (MSG-12)
}

// MessageStatus is the status of a message.
type MessageStatus string

// The statuses of a message.
const (
	MessagePending   MessageStatus = "pending"
	MessageCompleted MessageStatus = "completed"
	MessageFailed    MessageStatus = "failed"
)

// ToolCall is a call that a model asked for.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text, as the model wrote it
}

// Attachment is a file of the thread that belongs to a message.
type Attachment struct {
	Path     string `json:"path"`
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Size     int64  `json:"size,omitempty"`
}

// messageOverhead is about how much memory a message takes besides its texts.
const messageOverhead = 512

// Bytes returns about how many bytes of memory the message takes.
func (m *Message) Bytes() int64 {
	n := messageOverhead + len(m.ID) + len(m.RunID) + len(m.ReasoningContent) + len(m.Usage) + 128*(len(m.Metadata)+len(m.Attachments))
	if m.Content != nil {
		n += len(*m.Content)
	}
	for i := range m.ToolCalls {
		n += 128 + len(m.ToolCalls[i].Arguments)
	}
	for _, v := range m.Metadata {
		if text, ok := v.(string); ok {
			n += len(text)
		}
	}
	return int64(n)
}

// Bytes returns about how many bytes of memory the messages of the page take.
func (p *MessagePage) Bytes() (n int64) {
	for i := range p.Messages {
		n += p.Messages[i].Bytes()
	}
	return n
}

// MessageQuery selects a page of messages (MSG-02).
type MessageQuery struct {
	Limit         int // 100 when 0
	Offset        int
	Order         string // "", "asc" or "desc": no order = the newest slice, oldest first
	IncludeSilent bool
	MaxDepth      int // 0 = only depth 0
	AllDepths     bool
	// MaxBytes ends the page before the texts of its messages have more bytes, but not before its first message, and sets
	// HasMore then. 0 means no limit. It cannot be combined with AfterSeq.
	MaxBytes int64
	AfterSeq int64 // only messages after this one, in asc order; for the engine
	// IncludeQueued adds the messages of the inbox after the stored ones, as pending and with metadata.queued = true
	// (MSG-05). They count in Total. It cannot be combined with AfterSeq.
	IncludeQueued bool
}

// MessagePage is a page of messages.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Total    int64     `json:"total"`
	HasMore  bool      `json:"hasMore"`
}

// WorkPlace is a place in the list of threads with work: for each namespace the last thread that was listed.
type WorkPlace map[string]WorkMark

// WorkMark is a thread's place among those of its namespace.
type WorkMark struct {
	Since int64 // since when it has work, in milliseconds
	Key   int64 // the store's own, which decides between threads of the same time
}

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run.
const (
	RunRunning    RunStatus = "running"
	RunWaiting    RunStatus = "waiting" // parked: it holds no lease and no goroutine
	RunSucceeded  RunStatus = "succeeded"
	RunFailed     RunStatus = "failed"
	RunStopped    RunStatus = "stopped"
	RunTerminated RunStatus = "terminated"
)

// Ended reports whether a run with this status is over.
func (s RunStatus) Ended() bool { return s != RunRunning && s != RunWaiting }

// Run is one execution of a thread, from wake-up to rest.
type Run struct {
	ID        string // sess_ and 32 hex digits
	ThreadID  string
	Agent     string
	Status    RunStatus
	Reason    string // CamelCase
	Message   string // for people, redacted
	Steps     int
	StartedAt int64
	EndedAt   int64
	WakeAt    int64           // when a parked run continues by itself, in microseconds; kept only while it waits
	State     json.RawMessage // internal to the engine: counts, and what the run waits for
	Usage     json.RawMessage
	// SessionState is the state of the session, an object, kept with the run (STA-01). With nil, PutRun leaves the
	// stored state as it is.
	SessionState json.RawMessage
}

// Event is one entry of the thread's log.
type Event struct {
	Seq       int64           `json:"seq"`
	Type      string          `json:"type"`
	RunID     string          `json:"runId,omitempty"`
	MessageID string          `json:"messageId,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	CreatedAt int64           `json:"createdAt"`
}

// Bytes returns about how many bytes of memory the event takes.
func (e *Event) Bytes() int64 {
	return 128 + int64(len(e.Type)+len(e.RunID)+len(e.MessageID)+len(e.Data))
}

// Event types that Skein itself writes. The type of a custom event (EVT-01) is "event:" and its name.
const (
	EventRunStarted     = "run.started"
	EventRunWaiting     = "run.waiting"
	EventRunEnded       = "run.ended"
	EventRunRolledBack  = "run.rolledback" // Data: the number of messages taken back, and the calls and children of the run
	EventMessageQueued  = "message.queued"
	EventMessageCreated = "message.created"
	EventMessageUpdated = "message.updated"
	EventMessageDeleted = "message.deleted"
	EventDelta          = "message.delta" // Data {"text": "…"}: a piece of an unfinished answer
	EventToolStarted    = "tool.started"
	EventToolEnded      = "tool.ended"
	EventTurnEnded      = "turn.ended" // Data {"side": "a", "turn": 1, "next": "b"}: the session continues
	// EventContextCompacted: a model has summed up older messages (MSG-12); the event's message is the summary. Data
	// {"from", "to", "messages", "side", "prompt", "model", "requests"}.
	EventContextCompacted = "context.compacted"
	// EventCompactionFailed: older messages were to be summed up and could not be. Data {"reason", "message", "side",
	// "prompt", "requests"}.
	EventCompactionFailed = "context.compaction_failed"
	// EventContextTrimmed: a model call left out the oldest messages or shortened results. Data {"leftOut",
	// "shortened"?, "kept", "tokens", "contextWindow"?, "model"?}.
	EventContextTrimmed = "context.trimmed"
	EventToolProgress   = "tool.progress" // Data {"name", "toolCallId", "progress", "total", "message"}
	// EventApprovalRequested has {"name", "toolCallId", "expiresAt"?} as Data, EventApprovalDecided an ApprovalDecision.
	EventApprovalRequested = "approval.requested"
	EventApprovalDecided   = "approval.decided"
	EventHookFailed        = "hook.failed" // Data HookFailure
	EventCodeLog           = "code.log"    // Data CodeLine: a line that code wrote to the console
	EventHandlerLog        = "handler.log" // Data {"level": "info", "message": "…", "data": {…}}: a line of ctx.logger
	EventTaskFailed        = "task.failed" // Data TaskFailure
	EventTerminated        = "thread.terminated"
	EventThreadUpdated     = "thread.updated"   // Data: the changed fields with their new values
	EventDestroyed         = "thread.destroyed" // Data {"reason": "explicit|expired", "messages": 12}
	EventRetained          = "thread.retained"
	EventAdopted           = "thread.adopted"
	EventHandoff           = "thread.handoff" // Data HandoffData
	EventContinued         = "thread.continued"
	EventFileWritten       = "file.written"
	EventFileDeleted       = "file.deleted"
)

// HookFailure is the data of EventHookFailed: why a hook of the agent failed (HOK-01).
type HookFailure struct {
	Hook       string `json:"hook"`
	Owner      string `json:"owner"` // kind and name of the object that has the hook
	Error      string `json:"error"`
	MessageID  string `json:"messageId,omitempty"`
	ToolCallID string `json:"toolCallId,omitempty"`
}

// TaskFailure is the data of EventTaskFailed: why a post-run task failed (RUN-07).
type TaskFailure struct {
	Task  string `json:"task"`
	Error string `json:"error"`
}

// File is a file or a folder of a thread (FIL-02). The bucket stores its bytes under Digest.
type File struct {
	Path      string // normalised, starts with "/"
	MimeType  string
	Digest    string // SHA-256 in hex; "" for a folder
	Size      int64
	Dir       bool
	Metadata  json.RawMessage
	Width     int
	Height    int
	CreatedAt int64
}

// FindQuery selects threads by their names (IDS-01, THR-16). Exactly one of Name and ShortID is set.
type FindQuery struct {
	Name      string // of the Thread object
	ShortID   string // the last 12 hex digits of the id, in lower case
	Namespace string // all when empty
	Limit     int    // 100 when 0
}

// ThreadQuery selects threads (THR-15). An empty field does not restrict the list.
type ThreadQuery struct {
	Namespace string
	Agent     string
	UserID    string
	TaskID    string
	Archived  ArchivedFilter
	After     *ThreadCursor // only threads behind this position in the list
	Limit     int           // 100 when 0
	Offset    int
}

// ThreadCursor is a position in the list of threads: that of a thread as it was listed.
type ThreadCursor struct {
	LastActivityAt int64
	ID             string
}

// ArchivedFilter says which threads a list shows (THR-08).
type ArchivedFilter int

// The values of ArchivedFilter.
const (
	ArchivedHidden ArchivedFilter = iota // threads that are not archived
	ArchivedOnly
	ArchivedShown // both
)
