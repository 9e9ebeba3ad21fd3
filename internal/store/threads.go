package store

import (
	"cmp"
	"encoding/json"
	"slices"
)

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

	// EnvRoot is the root that the variables are sealed under; "" for RootID. See EnvTree.
	EnvRoot string

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
	Deleting        bool   // its object was deleted, and it is about to be purged or retained: no replica works on it
	NamespaceUID    string // of the namespace that it belongs to; "" when that is not known
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

// ThreadOwner says which Thread object a thread belongs to.
type ThreadOwner struct{ ThreadID, Name, UID string }

// Bytes returns about how many bytes of memory the thread takes.
func (t *Thread) Bytes() int64 {
	const header = 32 // of a text or a slice
	n := 2048 + len(t.Title) + len(t.Arguments) + len(t.Fields.Draft)
	for _, s := range t.Fields.ActivatedSkills {
		n += 2*header + len(s.Name) + len(s.Arguments)
	}
	if w := t.Fields.Workspace; w != nil {
		for _, tree := range w.Trees {
			n += header + len(tree)
		}
		for _, tag := range w.Tags {
			n += header + len(tag)
		}
	}
	return int64(n)
}

// EnvTree returns the id of the root under which the variables of the thread, and of all below it, are sealed. A thread that was adopted
// without its parent has become a root, but keeps the one from before.
func (t *Thread) EnvTree() string { return cmp.Or(t.EnvRoot, t.RootID) }

// BelongsTo reports whether the thread belongs to the Thread object with this UID.
func (t *Thread) BelongsTo(uid string) bool { return t.RetainedAt == 0 && t.OwnerUID() == uid }

// Within reports whether the thread belongs to the namespace with a UID. Retained data does not pass to a new namespace
// with the name of its own (THR-09).
func (t *Thread) Within(namespaceUID string) bool {
	return t.RetainedAt == 0 || t.NamespaceUID == "" || namespaceUID == "" || t.NamespaceUID == namespaceUID
}

// InNamespace returns the namespace that the thread belongs to.
func (t *Thread) InNamespace() Namespace { return Namespace{Name: t.Namespace, UID: t.NamespaceUID} }

// WithinAny reports whether the thread belongs to one of the namespaces with these UIDs. nil stands for all namespaces.
func (t *Thread) WithinAny(namespaceUIDs []string) bool {
	return t.RetainedAt == 0 || t.NamespaceUID == "" || namespaceUIDs == nil || slices.Contains(namespaceUIDs, t.NamespaceUID)
}

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

// FindQuery selects threads by their names (IDS-01, THR-16). Exactly one of Name and ShortID is set.
type FindQuery struct {
	Name      string // of the Thread object
	ShortID   string // the last 12 hex digits of the id, in lower case
	Namespace string // all when empty
	Limit     int    // 100 when 0
	// Present leaves out retained threads. It takes a name in a namespace.
	Present bool
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
	// MaxBytes ends the list before its threads take more bytes of memory, but behind the first one; 0 for no such bound.
	MaxBytes int64
	// NamespaceUIDs leaves out the threads that WithinAny does not report; nil for none of them.
	NamespaceUIDs []string
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
