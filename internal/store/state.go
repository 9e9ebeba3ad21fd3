package store

import (
	"context"
	"encoding/json"
	"errors"
)

// Errors of thread state and of imports.
var (
	// ErrStateTooLarge means that a strict MergeState would make the thread's state larger than MaxBytes (STA-05).
	ErrStateTooLarge = errors.New("the thread's state is too large")
	// ErrNotArray means that a push met a value that is not an array (STA-04).
	ErrNotArray = errors.New("the value is not an array")
	// ErrNotEmpty means that the thread already has contents. Only an empty thread takes an import (LOG-02).
	ErrNotEmpty = errors.New("the thread is not empty")
)

// SessionStore holds what the store keeps in addition to the conversation: the state of threads (the STA rows), the
// key-value service of namespaces (STA-07), the lifecycle feed of threads and runs (STA-06), usage, and the log (the
// LOG rows).
type SessionStore interface {
	// State returns entries of a thread's state, in the order in which their keys were first set.
	State(ctx context.Context, threadID string, q StateQuery) (*StatePage, error)
	// StateValue returns one value of a thread's state, or ErrNotFound when the key does not exist.
	StateValue(ctx context.Context, threadID, key string) (json.RawMessage, error)
	// StateWarnings returns what of a thread's state could not be saved and has not been saved since.
	StateWarnings(ctx context.Context, threadID string) ([]StateWarning, error)

	// ValueKeys lists the keys of a thread's key-value store in order, as q selects them.
	ValueKeys(ctx context.Context, threadID string, q KeyQuery) (*KeyPage, error)
	// Values returns the first values of a thread's key-value store by key, at most limit. A value of more than maxBytes
	// characters is nil.
	Values(ctx context.Context, threadID string, limit int, maxBytes int64) ([]StateEntry, error)
	// GetKV returns a value of the key-value service. ErrNotFound means that it does not exist or has expired (STA-07).
	GetKV(ctx context.Context, ns Namespace, store, key string) (*KVEntry, error)
	// SetKV keeps a value until e.ExpiresAt (microseconds), or for ever when that is 0. It also takes the place of a value
	// of an earlier namespace of the same name.
	SetKV(ctx context.Context, ns Namespace, store string, e KVEntry) error
	// DeleteKV removes a value and reports whether it existed.
	DeleteKV(ctx context.Context, ns Namespace, store, key string) (bool, error)
	// KVKeys lists the keys of a store of the service. It leaves out expired ones.
	KVKeys(ctx context.Context, ns Namespace, store string, q KeyQuery) (*KeyPage, error)

	// Lifecycle returns what happened to threads and runs after a cursor, oldest first (STA-06).
	Lifecycle(ctx context.Context, q LifecycleQuery) (*LifecyclePage, error)

	// Usage returns the sum of what ended runs used (LOG-03).
	Usage(ctx context.Context, q UsageQuery) (*UsageSum, error)
	// UsageRecords lists what the ended runs of a thread and their post-run tasks used, newest first; 100 when limit is
	// 0 (RUN-07). The list is empty when the thread does not exist.
	UsageRecords(ctx context.Context, threadID string, limit, offset int) ([]UsageRecord, error)

	// LogEntries returns entries of the log of the given types after a sequence number, oldest first. Messages are not
	// among them; read those with Messages.
	LogEntries(ctx context.Context, threadID string, after int64, limit int, types ...string) ([]Event, error)
	// Imported returns how a thread was imported, or ErrNotFound when it was not.
	Imported(ctx context.Context, threadID string) (*ImportRecord, error)

	// SweepSession removes expired values of the key-value service and entries of the lifecycle feed that were written
	// before feedBefore, a bounded number of each. more reports whether some remain.
	SweepSession(ctx context.Context, feedBefore int64) (removed int64, more bool, err error)
}

// StateEntry is one key of a thread's state, or of its key-value store.
type StateEntry struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// StateQuery selects entries. The zero value selects all of them, which is safe because MergeState.MaxBytes bounds
// them.
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

// StateChange is one change of a thread's state. A push appends Value to the array under Key, which it creates when
// missing, and keeps the last Max elements, or all when Max is 0.
type StateChange struct {
	Verb  StateVerb       `json:"op"`
	Key   string          `json:"key,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Max   int             `json:"max,omitempty"`
}

// MergeState applies changes to a thread's state, in order, within the store (STA-03).
//
// When the state as one JSON object would exceed MaxBytes, nothing changes. A strict merge then fails with
// ErrStateTooLarge. Another merge logs EventStateSkipped and stores a StateWarning, which the next merge that fits
// removes (STA-05). A push on a value that is not an array fails a strict merge with ErrNotArray; otherwise it is
// skipped and logged.
type MergeState struct {
	Changes  []StateChange
	MaxBytes int64 // no bound when 0
	Strict   bool
	Quiet    bool   // do not log or store a warning when the state is too large, because another merge follows
	RunID    string // the run that made the changes; for the log

	Persisted bool  // filled in
	Bytes     int64 // filled in: size of the state, or the size that it would have had
}

// SkipState logs EventStateSkipped. When the state was too large, it also stores a StateWarning.
type SkipState struct {
	RunID   string
	Skipped StateSkipped
}

// StateScope is thread state or session state.
type StateScope string

// The scopes that are stored.
const (
	ScopeThread  StateScope = "thread"
	ScopeSession StateScope = "session"
)

// Reasons of StateSkipped, beside ReasonStateTooLarge.
const (
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

// StateWarning says that a scope of a thread has not been saved since At.
type StateWarning struct {
	Scope   StateScope
	Reason  string
	Message string
	At      int64
}

// EventStateSkipped is logged when state was not saved. Its Data is a StateSkipped.
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

// LifecycleCursor is a position in the feed. The zero value is its beginning. Only the store reads the fields.
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
	// NamespaceUID is that of the thread's namespace; "" when it is not known.
	NamespaceUID string
}

// LifecycleQuery selects entries of the feed.
type LifecycleQuery struct {
	Namespace string // all when empty
	After     LifecycleCursor
	Latest    bool // return only the cursor of the feed's end
	Limit     int  // 100 when 0
	// NamespaceUID leaves out the entries of other namespaces of the same name; "" leaves out none.
	NamespaceUID string
}

// Selects reports whether the query is for an entry, wherever it is in the feed.
func (q *LifecycleQuery) Selects(e *LifecycleEvent) bool {
	return q.Namespace == "" || e.Namespace == q.Namespace && (q.NamespaceUID == "" || e.NamespaceUID == "" || e.NamespaceUID == q.NamespaceUID)
}

// LifecyclePage is a part of the feed. Next is where to continue. InFlight reports that transactions in flight may still
// commit entries that come before later ones, which therefore cannot be returned yet: read again soon.
type LifecyclePage struct {
	Events   []LifecycleEvent
	Next     LifecycleCursor
	InFlight bool
}

// UsageQuery selects what to sum over: a thread, with Subtree also its descendants; or a namespace; or an agent in it.
type UsageQuery struct {
	ThreadID  string
	Subtree   bool
	Namespace string
	Agent     string
	// NamespaceUID leaves out the sums of other namespaces of the same name; "" leaves out none.
	NamespaceUID string
}

// UsageSum is the sum of what ended runs used.
type UsageSum struct {
	Runs            int64   `json:"runs"`
	Turns           int64   `json:"turns"` // model calls
	InputTokens     int64   `json:"inputTokens"`
	OutputTokens    int64   `json:"outputTokens"`
	CacheReadTokens int64   `json:"cacheReadTokens"`
	ReasoningTokens int64   `json:"reasoningTokens"`
	Cost            float64 `json:"cost"`
	DurationMs      int64   `json:"durationMs"`
	Threads         int64   `json:"threads"` // that ran; a purged thread counts without its descendants
}

// RunUsage is the part of Run.Usage that is summed.
type RunUsage struct {
	InputTokens     int64   `json:"inputTokens"`
	OutputTokens    int64   `json:"outputTokens"`
	CachedTokens    int64   `json:"cachedTokens"`
	ReasoningTokens int64   `json:"reasoningTokens"`
	Cost            float64 `json:"cost"`
	// Models are the sorted names of the models that were called. They are not summed.
	Models []string `json:"models,omitempty"`
}

// ImportConversation fills an empty thread with a conversation from elsewhere (LOG-02), all or nothing. It fails with
// ErrNotEmpty when the thread has messages, an import, runs since it was last destroyed, or an inbox item that is to
// start a run. Lines is called again when the transaction is retried. Its error fails the transaction and is returned
// unchanged.
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

// ImportRecord says what a thread was imported from.
type ImportRecord struct {
	Manifest json.RawMessage
	LastSeq  int64 // of the log right after the import
}

// The types of imported log entries. Data is the imported line.
const (
	EventImportedToolUse       = "imported.tool_use"
	EventImportedAssistantText = "imported.assistant_text"
	EventImportedResult        = "imported.result"
)

func (*MergeState) op()         {}
func (*SkipState) op()          {}
func (*ImportConversation) op() {}
