package store

import (
	"context"
	"encoding/json"
	"errors"
)

// Errors of thread state and of imports.
var (
	// ErrStateTooLarge: a strict MergeState would make the thread's state larger than MaxBytes (STA-05).
	ErrStateTooLarge = errors.New("the thread's state is too large")
	// ErrNotArray: a push met a value that is no array (STA-04).
	ErrNotArray = errors.New("the value is not an array")
	// ErrNotEmpty: a conversation is imported into an empty thread only (LOG-02).
	ErrNotEmpty = errors.New("the thread is not empty")
)

// SessionStore is what the store keeps beside the conversation: thread state (SPEC STA), the namespaced key-value
// service (STA-07), the feed of what happens to threads and runs (STA-06), usage and the log in the
// order of its writing (SPEC LOG).
type SessionStore interface {
	// State gives entries of a thread's state, in the order in which their keys were first set.
	State(ctx context.Context, threadID string, q StateQuery) (*StatePage, error)
	// StateValue gives one value of a thread's state; ErrNotFound when absent.
	StateValue(ctx context.Context, threadID, key string) (json.RawMessage, error)
	// StateWarnings tells what of a thread's state could not be saved and has not been since.
	StateWarnings(ctx context.Context, threadID string) ([]StateWarning, error)

	// ValueKeys lists the keys of a thread's key-value store that begin with prefix, in order, from the one after.
	ValueKeys(ctx context.Context, threadID string, q KeyQuery) (*KeyPage, error)
	// GetKV gives a value of the key-value service; ErrNotFound when absent or expired (STA-07).
	GetKV(ctx context.Context, namespace, store, key string) (*KVEntry, error)
	// SetKV keeps a value until expiresAt (microseconds), for ever when 0.
	SetKV(ctx context.Context, namespace, store string, e KVEntry) error
	// DeleteKV removes a value; false when there was none.
	DeleteKV(ctx context.Context, namespace, store, key string) (bool, error)
	// KVKeys lists the keys of a store of the service, expired ones left out.
	KVKeys(ctx context.Context, namespace, store string, q KeyQuery) (*KeyPage, error)

	// Lifecycle gives what happened to threads and runs after a cursor, oldest first (STA-06).
	Lifecycle(ctx context.Context, q LifecycleQuery) (*LifecyclePage, error)

	// Usage sums what ended runs used (LOG-03).
	Usage(ctx context.Context, q UsageQuery) (*UsageSum, error)
	// UsageRecords lists what the ended runs of a thread used, and the tasks that followed them, newest first; 100
	// when limit is 0 (RUN-07). It is empty when there is no such thread.
	UsageRecords(ctx context.Context, threadID string, limit, offset int) ([]UsageRecord, error)

	// LogEntries gives the log's own entries of some types after a sequence number, oldest first. Messages are
	// not among them: read those with Messages.
	LogEntries(ctx context.Context, threadID string, after int64, limit int, types ...string) ([]Event, error)
	// Imported tells how a thread was imported; ErrNotFound when it was not.
	Imported(ctx context.Context, threadID string) (*ImportRecord, error)

	// SweepSession removes expired values of the key-value service and entries of the lifecycle feed that were
	// written before a time, a bounded number of each. more tells that there are others.
	SweepSession(ctx context.Context, feedBefore int64) (removed int64, more bool, err error)
}

// StateEntry is one key of a thread's state.
type StateEntry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// StateQuery selects entries; the zero value is all, which MaxBytes of MergeState bounds.
type StateQuery struct {
	Limit  int // all when 0
	Offset int
}

// StatePage is a page of entries.
type StatePage struct {
	Entries []StateEntry
	Total   int64
	Bytes   int64 // of the whole state as one JSON object
}

// StateVerb is a kind of change of a thread's state.
type StateVerb string

// The kinds of change.
const (
	StateSet    StateVerb = "set"
	StateDelete StateVerb = "delete"
	StatePush   StateVerb = "push"
	StateClear  StateVerb = "clear"
)

// StateChange is one change of a thread's state. A push appends Value to the array under Key, made when
// missing, and keeps the last Max elements, all when 0.
type StateChange struct {
	Verb  StateVerb       `json:"op"`
	Key   string          `json:"key,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Max   int             `json:"max,omitempty"`
}

// MergeState applies changes to a thread's state, in order, where it is stored (STA-03). When the state as
// one JSON object would have more than MaxBytes, nothing of it is changed: a strict merge fails with
// ErrStateTooLarge, another logs EventStateSkipped and notes a StateWarning, which the next merge that fits takes
// away (STA-05). A push on a value that is no array fails with ErrNotArray when strict, else it is skipped
// and logged.
type MergeState struct {
	Changes  []StateChange
	MaxBytes int64 // no bound when 0
	Strict   bool
	Quiet    bool   // a state that is too large is not logged and noted: another merge will follow
	RunID    string // whose changes they are; for the log

	Persisted bool  // filled in
	Bytes     int64 // filled in: of the state, or what it would have had
}

// SkipState logs that state was not saved, as EventStateSkipped, and with TooLarge notes a StateWarning.
type SkipState struct {
	RunID   string
	Skipped StateSkipped
}

// StateScope tells thread state from session state.
type StateScope string

// The scopes that are stored.
const (
	ScopeThread  StateScope = "thread"
	ScopeSession StateScope = "session"
)

// Reasons of StateSkipped.
const (
	StateTooLarge        = "StateTooLarge"
	StateNotArray        = "NotAnArray"
	StateNotSerializable = "NotSerializable"
)

// StateSkipped is the data of EventStateSkipped: what was not saved, and why.
type StateSkipped struct {
	Scope   StateScope `json:"scope"`
	Reason  string     `json:"reason"`
	Message string     `json:"message"`
	Key     string     `json:"key,omitempty"`
	Bytes   int64      `json:"bytes,omitempty"`
	Limit   int64      `json:"limit,omitempty"`
}

// StateWarning says that a scope of a thread was not saved since At.
type StateWarning struct {
	Scope   StateScope
	Reason  string
	Message string
	At      int64
}

// EventStateSkipped is logged when state was not saved; Data is StateSkipped.
const EventStateSkipped = "state.skipped"

// KeyQuery selects keys of a key-value store.
type KeyQuery struct {
	Prefix string
	After  string // only keys after this one
	Limit  int    // 100 when 0
}

// KeyPage is a page of keys in order.
type KeyPage struct {
	Keys    []string
	HasMore bool
}

// KVEntry is a value of the key-value service.
type KVEntry struct {
	Key       string
	Value     json.RawMessage
	ExpiresAt int64 // microseconds; 0 for never
	UpdatedAt int64
}

// Types of lifecycle events (STA-06).
const (
	LifecycleThreadCreated    = "thread.created"
	LifecycleThreadDestroyed  = "thread.destroyed"
	LifecycleSessionStarted   = "session.started"
	LifecycleSessionCompleted = "session.completed"
)

// LifecycleCursor is a place in the feed; the zero value is its beginning. Only the store reads the fields.
type LifecycleCursor struct{ Tick, Seq int64 }

// LifecycleEvent is one entry of the feed.
type LifecycleEvent struct {
	Cursor     LifecycleCursor
	Type       string
	Namespace  string
	ThreadID   string
	ThreadName string
	Agent      string
	RunID      string // of a session
	Reason     string // of the end: the run's status, or why the thread was destroyed
	CreatedAt  int64
}

// LifecycleQuery selects entries of the feed.
type LifecycleQuery struct {
	Namespace string // all when empty
	After     LifecycleCursor
	Latest    bool // nothing but the cursor of the feed's end
	Limit     int  // 100 when 0
}

// LifecyclePage is a part of the feed. Next is where to go on. Unsettled tells that entries follow which cannot
// be given yet, as some before them may still come: look again soon.
type LifecyclePage struct {
	Events    []LifecycleEvent
	Next      LifecycleCursor
	Unsettled bool
}

// UsageQuery says what to sum over: a thread, with Subtree its descendants too, or a namespace, or an agent of it.
type UsageQuery struct {
	ThreadID  string
	Subtree   bool
	Namespace string
	Agent     string
}

// UsageSum is what ended runs used.
type UsageSum struct {
	Runs            int64   `json:"runs"`
	Turns           int64   `json:"turns"` // model calls
	InputTokens     int64   `json:"inputTokens"`
	OutputTokens    int64   `json:"outputTokens"`
	CacheReadTokens int64   `json:"cacheReadTokens"`
	ReasoningTokens int64   `json:"reasoningTokens"`
	Cost            float64 `json:"cost"`
	DurationMs      int64   `json:"durationMs"`
	Threads         int64   `json:"threads"` // that ran, purged ones without their descendants' share
}

// RunUsage is what of Run.Usage is summed.
type RunUsage struct {
	InputTokens     int64   `json:"inputTokens"`
	OutputTokens    int64   `json:"outputTokens"`
	CachedTokens    int64   `json:"cachedTokens"`
	ReasoningTokens int64   `json:"reasoningTokens"`
	Cost            float64 `json:"cost"`
	// Models are the names of those that were called, sorted. They are not summed.
	Models []string `json:"models,omitempty"`
}

// ImportConversation fills an empty thread with a conversation from elsewhere (LOG-02), all or nothing.
// ErrNotEmpty when the thread has messages, an import, runs since it was last destroyed, or something in its inbox that is
// to set a run to work. Lines is called anew when the
// transaction is tried again. An error of it fails the transaction as it is.
type ImportConversation struct {
	Lines  func(yield func(ImportLine, error) bool)
	Record ImportRecord // LastSeq is filled in
	Title  string       // taken when the thread has none
	TaskID string       // taken when the thread has none
}

// ImportLine is a message, or an entry of the log.
type ImportLine struct {
	Message *Message
	Event   *Event
}

// ImportRecord tells what a thread was imported from.
type ImportRecord struct {
	Manifest json.RawMessage
	LastSeq  int64 // of the log right after the import
}

// The types of log entries that came by an import; Data is the line.
const (
	EventImportedToolUse       = "imported.tool_use"
	EventImportedAssistantText = "imported.assistant_text"
	EventImportedResult        = "imported.result"
)

func (*MergeState) op()         {}
func (*SkipState) op()          {}
func (*ImportConversation) op() {}
