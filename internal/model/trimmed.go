package model

// Trimmed says what of a request a model did not get to read because it exceeds the context window.
type Trimmed struct {
	// LeftOut is how many of the oldest messages after the system prompt were left out. Kept is how many were not.
	LeftOut, Kept int
	// Shortened is how many tool results were shortened in the middle.
	Shortened int
	// Tokens is the estimate for what was kept, tools included.
	Tokens int
	// ContextWindow is the model's context window in tokens; 0 when unknown.
	ContextWindow int64
}

// Without returns the messages without the oldest ones behind the Head.
func Without(messages []Message, leftOut int) []Message {
	head := Head(messages)
	if leftOut <= 0 || head+leftOut > len(messages) {
		return messages
	}
	kept := append(make([]Message, 0, len(messages)-leftOut), messages[:head]...)
	return append(kept, messages[head+leftOut:]...)
}
