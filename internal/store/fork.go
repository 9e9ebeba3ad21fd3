package store

import (
	"context"
	"errors"
)

var (
	// ErrForkPoint says that there is no such message to fork or to cut at.
	ErrForkPoint = errors.New("there is no such message")
	// ErrRunning says that a run is under way, which must end first.
	ErrRunning = errors.New("a run is under way")
)

// Fork is the first op of CreateThread: the new thread has the messages of another up to one of them, and what
// files it has. Nothing is copied of the messages: they are read through to the origin, and what either side
// changes of them afterwards the other does not see, also when the other is truncated, destroyed or purged (SPEC
// REL-02). Its cost does not grow with the messages. It is a change of the origin, too: both ends keep a
// Relationship. ErrNotFound when there is no such origin, ErrForkPoint when it has no such message.
type Fork struct {
	Origin string // thread id
	// MessageID of the last message that the fork has; else Index, the number of messages before it, those that are
	// silent or of deeper levels included.
	MessageID string
	Index     int64 // filled in
	Messages  int64 // filled in: how many messages the fork has
}

// Truncate removes all messages after one. The relationships of which the thread is the parent, and that were made
// past that message, go with them on both ends. The inbox stays as it is. ErrForkPoint when there is no such message, ErrRunning while a run is under way or parked, ErrConflict like
// UpdateThread.
type Truncate struct {
	MessageID     string // of the last message that stays; else Index
	Index         int64  // filled in; -1 removes all
	ExpectVersion *int64
	Removed       int64 // filled in
}

// PutRelationship keeps a relationship on both ends, in one transaction: the thread of Apply has R as it is, the
// peer has it with the other role. A second one of the same peer, type and role changes nothing, and Kept is the first
// one. ErrNotFound when there is no such peer, ErrForkPoint when the parent has no message R.MessageIndex.
type PutRelationship struct {
	R       Relationship
	Kept    Relationship // filled in
	Existed bool         // filled in
}

func (*Fork) op()            {}
func (*Truncate) op()        {}
func (*PutRelationship) op() {}

// RelationshipType says how two threads relate.
type RelationshipType string

// The types of relationships (REL-01).
const (
	RelationFork    RelationshipType = "fork"
	RelationHandoff RelationshipType = "handoff"
	RelationMention RelationshipType = "mention"
)

// The roles of a relationship's holder.
const (
	RelationParent = "parent"
	RelationChild  = "child"
)

// Relationship of a thread with another (REL-01).
type Relationship struct {
	ThreadID     string // of the other thread; it may be gone
	Type         RelationshipType
	Role         string // the holder's own
	MessageIndex int64  // where it was made, in the parent's messages; -1 when it is tied to none
	CreatedAt    int64
	Comment      string
}

// MaxParents bounds how many parents of one thread a list shows.
const MaxParents = 20

// RelationStore is what a Store knows of how threads relate.
type RelationStore interface {
	// Relationships of a thread, oldest first, and how many there are.
	Relationships(ctx context.Context, threadID string, limit, offset int) (rs []Relationship, total int64, err error)
	// ParentRelationships gives those in which the given threads are the child, by thread, oldest first; at most
	// MaxParents of each.
	ParentRelationships(ctx context.Context, threadIDs []string) (map[string][]Relationship, error)
}

// EventTruncated is the log entry of Truncate; its Data is {"index", "removed"}.
const EventTruncated = "thread.truncated"
