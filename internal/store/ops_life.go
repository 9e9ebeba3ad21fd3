package store

// Destroy clears the conversation: it removes the messages, the inbox and the thread state. Files, values and
// environment stay (THR-06). It revokes the lease, ends a run in progress as stopped, and logs EventDestroyed. The
// thread remains usable, and its log continues.
//
// With IfExpired it does so only when the thread has an idle expiry, nothing has happened for that long, and the thread
// is idle: no run, an empty inbox, no lease (THR-07). Done reports whether it did.
//
// With Within it is part of a run that continues: the lease stays, and the inbox keeps what waits for the next run.
type Destroy struct {
	Reason    string // DestroyedExplicit or DestroyedExpired
	IfExpired bool
	Within    bool
	Done      bool
}

// SetIdleExpiry sets after how long without a change the thread expires, in microseconds; 0 means never (THR-07). It
// does not change the version of the thread.
type SetIdleExpiry struct{ Expiry int64 }

// Park keeps present and future inbox items from being taken until an Enqueue with Unpark, or Continue (MSG-08). It
// does nothing when Unless returns true for an item that waits at that moment.
type Park struct{ Unless func(InboxItem) bool }

// Continue ends Park. It fails with ErrTerminated when the thread is terminated. Was reports whether it was parked.
type Continue struct{ Was bool }

// Revoke ends the thread's lease: nothing that its holder writes from now on is accepted.
type Revoke struct{}

// Retain keeps the thread without its object (THR-09). It revokes the lease, ends a run in progress as stopped and
// drops pending firings. Until Adopt, the thread fails every op but MarkForPurge with ErrRetained. Its inbox stays.
// Repeating Retain is no error. With NamespaceUID the data belongs to the namespace with that UID, and to no later one of
// the same name. With Of, it fails with ErrNotRetained when the thread belongs to another object than the one with this UID.
type Retain struct {
	NamespaceUID string
	Of           string
}

// Adopt gives a retained thread to a Thread object. The thread becomes a root under the object's name, and its inbox is
// processed again. It fails with ErrNotRetained when the thread already has an object or is being purged. Repeating it
// for the same object is no error.
type Adopt struct {
	ObjectUID string
	// NamespaceUID is that of the object's namespace. The operation fails with ErrNotRetained when the data belongs to
	// another one.
	NamespaceUID string
	Name         string
	Agent        string
	Title        string // empty leaves the title as it is
}

// Attach makes a root thread, with everything below it, the child of another thread of its namespace. It fails with
// ErrHasParent when the thread has another parent, with ErrCycle when the parent is below the thread, with ErrTerminated when
// one of the two is terminated, and with ErrHasEnv when the tree has variables of its own. Repeating it is no error.
type Attach struct {
	ParentID       string
	Reference      string
	Agent          string // that the thread runs
	Child          Child
	RegistryStatus func(last *Run) string // given the newest run of the thread; nil when it has none
}

// ExpectRoot fails the transaction with ErrHasParent when the thread is a child.
type ExpectRoot struct{}

// MarkForPurge decides that a retained thread is purged, so that nothing can adopt it any more. It fails with ErrNotRetained
// when the thread has an object. Repeating it is no error.
type MarkForPurge struct{}

func (*Destroy) op()       {}
func (*ExpectRoot) op()    {}
func (*SetIdleExpiry) op() {}
func (*Park) op()          {}
func (*Continue) op()      {}
func (*Revoke) op()        {}
func (*Retain) op()        {}
func (*Adopt) op()         {}
func (*MarkForPurge) op()  {}
func (*Attach) op()        {}
