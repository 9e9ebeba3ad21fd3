package tool

// The registry statuses that Skein itself sets (SUB-05). A child may set others.
const (
	ChildPending    = "pending"
	ChildRunning    = "running"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
)
