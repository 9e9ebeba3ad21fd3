package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StateEntry is one key of a thread's state.
type StateEntry struct {
	// Key has 1 to 512 bytes.
	Key string `json:"key"`
	// Value is any JSON.
	Value json.RawMessage `json:"value"`
}

// StateList is a page of a thread's state, keys in the order in which they were first set.
type StateList struct {
	metav1.TypeMeta `json:",inline"`
	// Entries is the page.
	Entries []StateEntry `json:"entries"`
	// Total is the number of keys.
	Total int64 `json:"total"`
	// Bytes is the size of the whole state as JSON. At most 1,048,576 bytes are stored.
	Bytes int64 `json:"bytes"`
	// HasMore reports whether more entries follow.
	HasMore bool `json:"hasMore"`
}

// StateOperation is one change of a thread's state.
type StateOperation struct {
	// Op is set, delete, push or clear.
	Op string `json:"op"`
	// Key is the key to change; clear has none.
	Key string `json:"key,omitempty"`
	// Value is the value to set, or to append to the array under the key.
	Value json.RawMessage `json:"value,omitempty"`
	// Max is how many of the last elements a push keeps. 0 means all.
	Max int `json:"max,omitempty"`
}

// StateChanges is a batch of changes, applied in order, all or nothing, without fetching the state.
type StateChanges struct {
	// Ops lists the changes in order.
	Ops []StateOperation `json:"ops"`
}

// StateSize is the answer to a change: the size of the state after it.
type StateSize struct {
	// Bytes is the size of the whole state as JSON.
	Bytes int64 `json:"bytes"`
}

// StateSkipped is the data of the event state.skipped: what part of a run's state was not saved, and why.
type StateSkipped struct {
	// Scope is thread or session.
	Scope string `json:"scope"`
	// Reason is StateTooLarge, NotAnArray or NotSerializable.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// Key is the key of the value, when it is about one value.
	Key string `json:"key,omitempty"`
	// Bytes is the size that it would have had.
	Bytes int64 `json:"bytes,omitempty"`
	// Limit is the limit that the size exceeds.
	Limit int64 `json:"limit,omitempty"`
}

// KeyList is a page of keys in order.
type KeyList struct {
	metav1.TypeMeta `json:",inline"`
	// Keys is the page.
	Keys []string `json:"keys"`
	// HasMore reports whether more keys follow: request them with after=<the last>.
	HasMore bool `json:"hasMore"`
}

// ValueRecord is a value of the key-value service.
type ValueRecord struct {
	metav1.TypeMeta `json:",inline"`
	// Exists is false when there is no such value, or it has expired.
	Exists bool `json:"exists"`
	// Data is the value. It is null when there is none.
	Data json.RawMessage `json:"data"`
	// ExpiresAt is in microseconds. 0 means never.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
}

// LifecycleEvent is an event in the life of a thread, or of a session, which is one of its runs. As a server-sent
// event, its id is the cursor, its name is type and its data is this object.
type LifecycleEvent struct {
	// Cursor is the position of the event. Resume with after=<cursor>.
	Cursor string `json:"cursor"`
	// Type is thread.created, thread.destroyed, session.started or session.completed.
	Type string `json:"type"`
	// Namespace is the namespace of the thread.
	Namespace string `json:"namespace"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// ThreadName is the name of the Thread object.
	ThreadName string `json:"threadName"`
	// AgentID is the agent that runs the thread, or ran the session.
	AgentID string `json:"agentId"`
	// SessionID is the run.
	SessionID string `json:"sessionId,omitempty"`
	// Reason is how the session ended (the status of the run), or why the thread was destroyed.
	Reason string `json:"reason,omitempty"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// Types of lifecycle events.
const (
	LifecycleThreadCreated    = "thread.created"
	LifecycleThreadDestroyed  = "thread.destroyed"
	LifecycleSessionStarted   = "session.started"
	LifecycleSessionCompleted = "session.completed"
)

// LifecycleList is a page of the feed, oldest first.
type LifecycleList struct {
	metav1.TypeMeta `json:",inline"`
	// Events is the page.
	Events []LifecycleEvent `json:"events"`
	// Next is the cursor to continue after.
	Next string `json:"next"`
	// HasMore reports whether more events exist already.
	HasMore bool `json:"hasMore"`
}

// Usage is the total usage of ended runs. The usage of purged threads stays in the totals of their namespace, their
// agent and their ancestors.
type Usage struct {
	metav1.TypeMeta `json:",inline"`
	// Threads is the number of threads that have run.
	Threads int64 `json:"threads"`
	// Runs is the number of runs that have ended.
	Runs int64 `json:"runs"`
	// Turns is the number of model calls.
	Turns int64 `json:"turns"`
	// InputTokens is the number of tokens that models read.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens is the number of tokens that models wrote.
	OutputTokens int64 `json:"outputTokens"`
	// CacheReadTokens is the number of input tokens that came from a provider's cache.
	CacheReadTokens int64 `json:"cacheReadTokens"`
	// ReasoningTokens is the number of output tokens for reasoning.
	ReasoningTokens int64 `json:"reasoningTokens"`
	// Cost is in US dollars, 0 without prices.
	Cost float64 `json:"cost"`
	// DurationMs is how long runs took, including waiting.
	DurationMs int64 `json:"durationMs"`
}

// UsageRecord is the usage of one run, or of one of the tasks that followed it.
type UsageRecord struct {
	// RunID is the run.
	RunID string `json:"runId"`
	// Task is the task that followed the run, "title" or "embeddings". It is absent for the run itself.
	Task string `json:"task,omitempty"`
	// Agent is the agent that ran.
	Agent string `json:"agent"`
	// Models lists the names of the Model objects that were called.
	Models []string `json:"models,omitempty"`
	// Status is the status of the run.
	Status string `json:"status,omitempty"`
	// Turns is the number of the run's model calls.
	Turns int64 `json:"turns"`
	// InputTokens is the number of tokens that models read.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens is the number of tokens that models wrote.
	OutputTokens int64 `json:"outputTokens"`
	// CacheReadTokens is the number of input tokens that came from a provider's cache.
	CacheReadTokens int64 `json:"cacheReadTokens"`
	// ReasoningTokens is the number of output tokens for reasoning.
	ReasoningTokens int64 `json:"reasoningTokens"`
	// Cost is in US dollars, 0 without prices.
	Cost float64 `json:"cost"`
	// DurationMs is how long the run took, including waiting.
	DurationMs int64 `json:"durationMs"`
	// StartedAt is in microseconds.
	StartedAt int64 `json:"startedAt"`
	// EndedAt is in microseconds.
	EndedAt int64 `json:"endedAt"`
}

// UsageRecordList is a page of a thread's usage records, newest first.
type UsageRecordList struct {
	metav1.TypeMeta `json:",inline"`
	// Records is the page.
	Records []UsageRecord `json:"records"`
	// HasMore reports whether older records follow.
	HasMore bool `json:"hasMore"`
}

// ImportResult says what an import created.
type ImportResult struct {
	metav1.TypeMeta `json:",inline"`
	// Messages is the number of messages in the conversation after the import.
	Messages int64 `json:"messages"`
	// Events is the number of tool uses, assistant texts and results, which are stored in the log.
	Events int64 `json:"events"`
	// LastEvent is the sequence number of the newest of these events.
	LastEvent int64 `json:"lastEvent"`
}

// MediaTypeJSONL is the media type of exports and imports.
const MediaTypeJSONL = "application/jsonl"

// Limits of imports, and of the size of a thread's state as JSON.
const (
	MaxImportBytes     = 64 << 20
	MaxImportLineBytes = 4 << 20
	MaxStateBytes      = 1 << 20
)

// Kinds of the answers above.
const (
	KindStateList     = "StateList"
	KindKeyList       = "KeyList"
	KindValueRecord   = "ValueRecord"
	KindLifecycleList = "LifecycleList"
	KindUsage         = "Usage"
	KindUsageRecords  = "UsageRecordList"
	KindImportResult  = "ImportResult"
)
