package store

// Work is what a thread has to do, read at one moment.
type Work struct {
	Thread *Thread
	// Inbox holds the waiting items, in order.
	Inbox []InboxItem
	// Run is the newest run; nil when there is none.
	Run *Run
}

// Position is a cheap way to see whether a thread's conversation, inbox or runs have changed: every such change takes a
// sequence number.
type Position struct {
	Agent   string
	LastSeq int64
}

// Mark is filled in with the thread's LastSeq before the transaction and at this op. A reader that is current at Before
// and knows what the transaction wrote is current at After.
type Mark struct{ Before, After int64 }

func (*Mark) op() {}

// WorkPlace is a place in the list of threads with work: for each namespace the last thread that was listed.
type WorkPlace map[string]WorkMark

// WorkMark is a thread's place among those of its namespace.
type WorkMark struct {
	Since int64 // since when it has work, in milliseconds
	Key   int64 // the store's own, which decides between threads of the same time
}
