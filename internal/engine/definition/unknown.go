package definition

// UnknownError says that what a call names is not there: a tool of the agent, a definition of the namespace.
type UnknownError struct{ Message string }

// Error implements error.
func (e *UnknownError) Error() string { return e.Message }
