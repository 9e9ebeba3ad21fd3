package tool

import (
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The registry statuses that Skein itself sets (SUB-05). A child may set others.
const (
	ChildRunning    = "running"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
)

// Alive reports whether a child may still work or receive messages.
func Alive(c skeinv1.ChildStatus) bool {
	switch c.Status {
	case ChildTerminated:
		return false
	case ChildCompleted, ChildFailed:
		return c.Resumable
	}
	return true
}

// Living returns the number of living children of a kind, or of all kinds when kind is empty.
func Living(registry []skeinv1.ChildStatus, kind string) int {
	n := 0
	for _, c := range registry {
		if (kind == "" || c.Name == kind) && Alive(c) {
			n++
		}
	}
	return n
}
