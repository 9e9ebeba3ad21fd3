package definition

// UnknownError reports that something that a call names does not exist, such as a tool of the agent or a definition in the
// namespace.
type UnknownError struct {
	Message string
	// Unsure means that it may exist: a server that would know did not answer.
	Unsure bool
}

// Error implements error.
func (e *UnknownError) Error() string { return e.Message }
