package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StateEntry is one key of a thread's state.
type StateEntry struct {
	// Key of 1 to 512 bytes.
	Key string `json:"key"`
	// Value, any JSON.
	Value json.RawMessage `json:"value"`
}

// StateList is a page of a thread's state, keys in the order in which they were first set.
type StateList struct {
	metav1.TypeMeta `json:",inline"`
	// Entries of the page.
	Entries []StateEntry `json:"entries"`
	// Total number of keys.
	Total int64 `json:"total"`
	// Bytes of the whole state as JSON; at most 1,048,576 are kept.
	Bytes int64 `json:"bytes"`
	// HasMore tells that there are entries beyond this page.
	HasMore bool `json:"hasMore"`
}

// StateOperation is one change of a thread's state.
type StateOperation struct {
	// Op: set, delete, push or clear.
	Op string `json:"op"`
	// Key that is changed; none for clear.
	Key string `json:"key,omitempty"`
	// Value to set, or to append to the array under the key.
	Value json.RawMessage `json:"value,omitempty"`
	// Max is how many of the last elements a push keeps, all when 0.
	Max int `json:"max,omitempty"`
}

// StateChanges is a batch, applied in order, all or nothing, without fetching the state.
type StateChanges struct {
	// Ops in order.
	Ops []StateOperation `json:"ops"`
}

// StateSize answers a change: the size of the state after it.
type StateSize struct {
	// Bytes of the whole state as JSON.
	Bytes int64 `json:"bytes"`
}

// StateSkipped is the data of the event state.skipped: what of a run's state was not saved, and why.
type StateSkipped struct {
	// Scope: thread or session.
	Scope string `json:"scope"`
	// Reason: StateTooLarge, NotAnArray or NotSerializable.
	Reason string `json:"reason"`
	// Message for people.
	Message string `json:"message"`
	// Key of the value, when it is about one.
	Key string `json:"key,omitempty"`
	// Bytes that it would have had.
	Bytes int64 `json:"bytes,omitempty"`
	// Limit that they are over.
	Limit int64 `json:"limit,omitempty"`
}

// KeyList is a page of keys in order.
type KeyList struct {
	metav1.TypeMeta `json:",inline"`
	// Keys of the page.
	Keys []string `json:"keys"`
	// HasMore tells that there are keys after the last: ask again with after=<the last>.
	HasMore bool `json:"hasMore"`
}

// ValueRecord is a value of the key-value service.
type ValueRecord struct {
	metav1.TypeMeta `json:",inline"`
	// Exists is false when there is no such value, or it has expired.
	Exists bool `json:"exists"`
	// Data is the value, null when there is none.
	Data json.RawMessage `json:"data"`
	// ExpiresAt in microseconds, 0 for never.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
}

// LifecycleEvent is something that happened to a thread, or to a session, which is a run of it. Over
// server-sent events the id is the cursor, the event name is type and the data is this object.
type LifecycleEvent struct {
	// Cursor of the event. Resume with after=<cursor>.
	Cursor string `json:"cursor"`
	// Type: thread.created, thread.destroyed, session.started or session.completed.
	Type string `json:"type"`
	// Namespace of the thread.
	Namespace string `json:"namespace"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// ThreadName is the name of the Thread object.
	ThreadName string `json:"threadName"`
	// AgentID is the agent that runs the thread, or ran the session.
	AgentID string `json:"agentId"`
	// SessionID is the run.
	SessionID string `json:"sessionId,omitempty"`
	// Reason: how the session ended (the status of the run), or why the thread was destroyed.
	Reason string `json:"reason,omitempty"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// Types of lifecycle events.
const (
	LifecycleThreadCreated    = "thread.created"
	LifecycleThreadDestroyed  = "thread.destroyed"
	LifecycleSessionStarted   = "session.started"
	LifecycleSessionCompleted = "session.completed"
)

// LifecycleList is a part of the feed, oldest first.
type LifecycleList struct {
	metav1.TypeMeta `json:",inline"`
	// Events of the page.
	Events []LifecycleEvent `json:"events"`
	// Next is the cursor to go on after.
	Next string `json:"next"`
	// HasMore tells that there are more already.
	HasMore bool `json:"hasMore"`
}

// Usage sums what ended runs used. What purged threads used stays in the sums of their namespace and
// agent, and in those of their ancestors.
type Usage struct {
	metav1.TypeMeta `json:",inline"`
	// Threads that have run.
	Threads int64 `json:"threads"`
	// Runs that have ended.
	Runs int64 `json:"runs"`
	// Turns are model calls.
	Turns int64 `json:"turns"`
	// InputTokens that models read.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens that models wrote.
	OutputTokens int64 `json:"outputTokens"`
	// CacheReadTokens of the input that came from a provider's cache.
	CacheReadTokens int64 `json:"cacheReadTokens"`
	// ReasoningTokens of the output.
	ReasoningTokens int64 `json:"reasoningTokens"`
	// Cost in the currency of the models' prices, 0 where none are given.
	Cost float64 `json:"cost"`
	// DurationMs that runs took, waiting included.
	DurationMs int64 `json:"durationMs"`
}

// UsageRecord is what one run used, or one of the tasks that followed it.
type UsageRecord struct {
	// RunID is the run.
	RunID string `json:"runId"`
	// Task that followed the run: "title" or "embeddings"; absent for the run itself.
	Task string `json:"task,omitempty"`
	// Agent that ran.
	Agent string `json:"agent"`
	// Models that were called, by the names of their objects.
	Models []string `json:"models,omitempty"`
	// Status of the run.
	Status string `json:"status,omitempty"`
	// Turns are the run's model calls.
	Turns int64 `json:"turns"`
	// InputTokens that models read.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens that models wrote.
	OutputTokens int64 `json:"outputTokens"`
	// CacheReadTokens of the input that came from a provider's cache.
	CacheReadTokens int64 `json:"cacheReadTokens"`
	// ReasoningTokens of the output.
	ReasoningTokens int64 `json:"reasoningTokens"`
	// Cost in the currency of the models' prices, 0 where none are given.
	Cost float64 `json:"cost"`
	// DurationMs that the run took, waiting included.
	DurationMs int64 `json:"durationMs"`
	// StartedAt in microseconds.
	StartedAt int64 `json:"startedAt"`
	// EndedAt in microseconds.
	EndedAt int64 `json:"endedAt"`
}

// UsageRecordList is a page of a thread's usage records, newest first.
type UsageRecordList struct {
	metav1.TypeMeta `json:",inline"`
	// Records of the page.
	Records []UsageRecord `json:"records"`
	// HasMore tells that there are older ones.
	HasMore bool `json:"hasMore"`
}

// ImportResult tells what an import brought.
type ImportResult struct {
	metav1.TypeMeta `json:",inline"`
	// Messages that the conversation has now.
	Messages int64 `json:"messages"`
	// Events are tool uses, assistant texts and results, which are kept in the log.
	Events int64 `json:"events"`
	// LastEvent is the sequence number of the newest of them.
	LastEvent int64 `json:"lastEvent"`
}

// MediaTypeJSONL is the media type of exports and imports.
const MediaTypeJSONL = "application/jsonl"

// Bounds of imports, and how much JSON a thread's state may have.
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
