package tool

import "context"

// Others is what the tools of a thread may do with threads that are not of its family.
type Others interface {
	// Read returns the conversation of another thread as Markdown, and records the mention (REL-04).
	Read(ctx context.Context, req ReadThread) (string, error)
	// HandOff makes a new thread that goes on for a goal with the context of this one (REL-03).
	HandOff(ctx context.Context, req HandOff) (*HandedOff, error)
	// MayHandOff reports whether the thread may hand its context off at all.
	MayHandOff() bool
}

// ReadThread says which thread to read.
type ReadThread struct {
	Thread string `json:"thread"` // a name, or any spelling of an id
	Goal   string `json:"goal"`   // what the reader wants to know
	From   *int64 `json:"from"`   // the message to read on from; nil for what matters for the goal
}

// HandOff asks for a new thread.
type HandOff struct {
	Cause   string   `json:"-"` // the tool call's id; a repeat returns the same thread
	Goal    string   `json:"goal"`
	Agent   string   `json:"agent"` // "" for the agent of this thread
	Files   []string `json:"files"` // paths of this thread's files
	Comment string   `json:"comment"`
	Title   string   `json:"title"`
}

// HandedOff is the new thread.
type HandedOff struct {
	Thread   string `json:"thread"` // the name of its object
	ThreadID string `json:"threadId"`
	Agent    string `json:"agent"`
}
