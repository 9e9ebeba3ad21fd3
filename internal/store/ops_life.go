package store

// Destroy clears the conversation: its messages, what waits in its inbox and its thread state go, and files,
// values and environment stay (THR-06). Whoever runs the thread is shut out, a run under way ends as
// stopped, and EventDestroyed is logged. The thread goes on to be usable, and its log to grow.
//
// With IfExpired it does so only when the thread has an idle expiry, nothing has happened for so long, and
// nobody is at it: no run, nothing in its inbox, no lease (THR-07). Done tells whether it did.
//
// With Within it is part of a run, which goes on: nobody is shut out, and the inbox keeps what waits for the next run.
type Destroy struct {
	Reason    string // DestroyedExplicit or DestroyedExpired
	IfExpired bool
	Within    bool
	Done      bool
}

// SetIdleExpiry says after how long without a change the thread expires, in microseconds, 0 for never (SPEC
// THR-07). It is no change itself: the version stays.
type SetIdleExpiry struct{ Expiry int64 }

// Park keeps what is in the inbox, and what comes, from being taken until an Enqueue with Unpark, or Continue
// (MSG-08). With Unless it does nothing where that says so of an item that waits at that moment.
type Park struct{ Unless func(InboxItem) bool }

// Continue ends Park. ErrTerminated when the thread is terminated. Was tells whether it was parked.
type Continue struct{ Was bool }

// Revoke shuts out whoever holds the thread's lease: nothing of what he writes from now on is accepted.
type Revoke struct{}

// Retain keeps the thread without its object (THR-09): whoever runs it is shut out, a run under way ends
// as stopped, firings that are pending are dropped, and until Adopt the thread takes no other op than Condemn
// (ErrRetained). What is in its inbox stays. Again is no error.
type Retain struct{}

// Adopt gives a retained thread to a Thread object; it is a root then, under the object's name. What is in its
// inbox is taken up. ErrNotRetained when it has an object already, or was condemned; again by the same object
// is no error.
type Adopt struct {
	ObjectUID string
	Name      string
	Agent     string
	Title     string // stays when empty
}

// Condemn decides that a retained thread is purged: nobody can adopt it any more. ErrNotRetained when it has
// an object. Again is no error.
type Condemn struct{}

func (*Destroy) op()       {}
func (*SetIdleExpiry) op() {}
func (*Park) op()          {}
func (*Continue) op()      {}
func (*Revoke) op()        {}
func (*Retain) op()        {}
func (*Adopt) op()         {}
func (*Condemn) op()       {}
