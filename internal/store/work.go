package store

// Work is what a thread has to do, all of one moment.
type Work struct {
	Thread *Thread
	// Inbox is what waits, in order.
	Inbox []InboxItem
	// Run is the newest; nil when there is none.
	Run *Run
}

// Position is what tells at little cost whether something of a thread's conversation, inbox or runs has changed: whatever changes them
// takes a sequence number.
type Position struct {
	Agent   string
	LastSeq int64
}

// Mark is filled in with the thread's LastSeq before the transaction and at this op. Whoever knows all up to Before, and what
// the transaction wrote, knows all up to After.
type Mark struct{ Before, After int64 }

func (*Mark) op() {}
