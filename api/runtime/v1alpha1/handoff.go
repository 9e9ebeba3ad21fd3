package v1alpha1

// MaxHandoffFiles is how many files a context handoff may copy.
const MaxHandoffFiles = 10

// ContextHandoff is the body of POST handoff. A new thread starts from the goal, a summary of this thread that a model
// writes for the goal, and copies of files. This thread stays as it is, but for a relationship.
type ContextHandoff struct {
	// Goal says what the new thread is to do. Its first message begins with it.
	Goal string `json:"goal"`
	// Agent of the new thread; that of this one by default.
	Agent string `json:"agent,omitempty"`
	// Files are paths of this thread's files, at most 10. The new thread has them below /attachments.
	Files []string `json:"files,omitempty"`
	// Comment is kept with the relationship.
	Comment string `json:"comment,omitempty"`
	// Title of the new thread.
	Title string `json:"title,omitempty"`
	// IdempotencyKey makes a repeat return the same thread.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// HandedOff is the answer to POST handoff: the new thread.
type HandedOff struct {
	// Name of the Thread object.
	Name string `json:"name"`
	// ThreadID of the new thread.
	ThreadID string `json:"threadId"`
	// AgentID is the agent that the new thread was created with.
	AgentID string `json:"agentId"`
}
