package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// ChildStore holds what parents give to the children that their runs make, and counts the living children (SUB-03,
// K8S-07).
type ChildStore interface {
	// ReserveChild stores a task and counts its child as living, unless that would exceed a limit. It then returns a
	// *ChildLimitError and stores nothing. The tasks of one namespace are reserved one after the other, so that calls at
	// the same time cannot exceed a limit together. A repeat changes nothing and returns the digest of the stored task. It
	// fails with ErrChildPurged when the child was made and is purged.
	ReserveChild(ctx context.Context, t ChildTask, limits []ChildLimit) (digest string, err error)
	// ReleaseChild records that a child will not be created, or has ended, so that it does not count any more. A repeat,
	// or a child that is not known, is no error.
	ReleaseChild(ctx context.Context, parentID, reference string) error
	// ChildTask returns the task with this id and its digest, or ErrNotFound.
	ChildTask(ctx context.Context, id string) (t *ChildTask, digest string, err error)
	// LivingChildren returns how many living children a thread of a namespace has, by their kind. Its cost does not grow with their
	// number.
	LivingChildren(ctx context.Context, namespace, parentID string) (map[string]int, error)
	// UnmadeChildren lists living children of a thread that were reserved before a time in microseconds and have no thread.
	UnmadeChildren(ctx context.Context, parentID string, before int64) (references []string, err error)
	// Child returns the child of a thread with this reference, or ErrNotFound.
	Child(ctx context.Context, parentID, reference string) (*Thread, error)
	// ChildStates returns what the present children with these references do, by reference. Those that are retained are left out. Its cost
	// does not grow with the number of the other children.
	ChildStates(ctx context.Context, parentID string, references []string) (map[string]ChildState, error)
	// UnfinishedChildren returns the ids of the children that are neither terminated nor retained, oldest first. Its cost does not
	// grow with the number of the others.
	UnfinishedChildren(ctx context.Context, parentID string) (ids []string, err error)
	// UnfinishedBelow returns the ids of the unfinished children of a thread, and of those of its terminated children, and so on.
	UnfinishedBelow(ctx context.Context, parentID string) (ids []string, err error)
	// WorkingChildren lists the unfinished children that have something to do, oldest first: a run that has not ended, items in
	// their inbox, or no run yet.
	WorkingChildren(ctx context.Context, parentID string) ([]Thread, error)
	// ChildrenSince lists the children of a thread that were created at a time in microseconds or later, oldest first.
	ChildrenSince(ctx context.Context, parentID string, since int64) ([]Thread, error)
}

// ChildState says what a child does.
type ChildState struct{ ThreadID, RegistryStatus string }

// ChildTask is what a parent gives to a child that it makes. It is removed with the child. That there was one is removed with the
// parent.
type ChildTask struct {
	ID        string // derived from the parent and the cause
	ParentID  string
	Reference string // name of the Subagent object
	Namespace string
	Kind      string // as the parent's agent lists it
	Agent     string // that the child runs
	Task      json.RawMessage
}

// ChildScope is a set of living children that a limit counts.
type ChildScope string

// The scopes.
const (
	ChildrenOfParent    ChildScope = "parent"
	ChildrenOfKind      ChildScope = "kind"  // of one kind under the parent
	ChildrenOfAgent     ChildScope = "agent" // of all parents in the namespace
	ChildrenOfNamespace ChildScope = "namespace"
)

// ChildLimit is the largest number of living children in a scope.
type ChildLimit struct {
	Scope ChildScope
	Most  int
}

// ChildLimitError says which limit a new child would exceed.
type ChildLimitError struct {
	ChildLimit
	Living int
}

// Error implements error.
func (e *ChildLimitError) Error() string {
	return fmt.Sprintf("there are %d living children of the same %s, and the limit is %d", e.Living, e.Scope, e.Most)
}
