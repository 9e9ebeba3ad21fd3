package v1alpha1

// NewFork is the body of POST fork. Without messageIndex and messageId the fork has all messages that the thread has now.
type NewFork struct {
	// MessageIndex is the index of the last message of the fork: the number of messages before it, including silent ones
	// and those of deeper levels.
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// MessageID is the id of the last message of the fork.
	MessageID string `json:"messageId,omitempty"`
	// Name of the fork's Thread object. When it is empty, the server derives one from this thread's.
	Name string `json:"name,omitempty"`
	// Title of the fork; "Forked: X" for a thread with the title X when it is empty.
	Title string `json:"title,omitempty"`
	// AgentID is the agent of the fork. When it is empty, it is the one that runs this thread now.
	AgentID string `json:"agentId,omitempty"`
	// Message is the first message of the user in the fork, which starts a run. It stands in the spec of the Thread object.
	Message string `json:"message,omitempty"`
	// IdempotencyKey makes a repeat return the fork of the first request. The header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}
