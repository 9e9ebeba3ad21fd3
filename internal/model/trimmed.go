package model

// Trimmed tells what of a request a model did not get to read, since it would not have fitted its window.
type Trimmed struct {
	// LeftOut is how many of the oldest messages behind the system prompt were left out, Kept how many were not.
	LeftOut, Kept int
	// Shortened is of how many results of tools the middle was left out.
	Shortened int
	// Tokens of what was kept, tools included, as they were estimated.
	Tokens int
	// ContextWindow of the model in tokens; 0 when nobody has said it.
	ContextWindow int64
}

// Without leaves out the oldest messages behind the system prompt, which is the first.
func Without(messages []Message, leftOut int) []Message {
	if leftOut <= 0 || leftOut >= len(messages) {
		return messages
	}
	kept := append(make([]Message, 0, len(messages)-leftOut), messages[0])
	return append(kept, messages[1+leftOut:]...)
}
