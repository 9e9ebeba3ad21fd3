package store

import (
	"context"
	"errors"
)

var (
	// ErrForkPoint means that the thread has no such message to fork or truncate at.
	ErrForkPoint = errors.New("there is no such message")
	// ErrForkSources means that a fork would read its messages from more than MaxForkSources threads, or in more than MaxForkSegments parts.
	ErrForkSources = errors.New("a fork cannot have its messages from so many threads, or in so many parts")
	// ErrRunning means that a run is in progress and must end first.
	ErrRunning = errors.New("a run is under way")
)

const (
	// MaxForkSources is from how many threads a fork may have its messages. Each fork of a fork reads one more, unless it is made before the
	// first message of its origin.
	MaxForkSources = 1000
	// MaxForkSegments is in how many parts they may be. A message that a thread has inherited and then changed divides a part.
	MaxForkSegments = 10_000
)

// Fork is the first op of CreateThread. The new thread has the messages of Origin up to one of them, and its files.
//
// No message is copied: the fork reads them from the origin. Neither thread sees what the other changes afterwards,
// even when the other is truncated, destroyed or purged (REL-02). The cost does not grow with the number of messages. It grows with the
// number of threads that the messages come from, of parts that they are in, and of files. ErrForkSources bounds the first two.
// Fork also changes the origin: both threads get a Relationship. It fails with ErrNotFound when the origin does not
// exist, and with ErrForkPoint when it has no such message.
type Fork struct {
	Origin string // thread id
	// MessageID names the last message of the fork. When it is empty, Index does: the number of messages before that
	// message, silent and deeper ones included. Newest means the last message that the origin has.
	MessageID string
	Index     int64 // filled in when another field names the message
	Newest    bool
	// Seq is the message's sequence number, in place of MessageID and Index, when it is not 0. It means the same message when
	// others have been removed since, or come in the place of removed ones.
	Seq      int64
	Messages int64 // filled in: the number of messages of the fork
}

// Truncate removes all messages after one. Relationships that were made past that message, and in which the thread is
// the parent, are removed from both threads. The inbox stays as it is. It fails with ErrForkPoint when the message does
// not exist, with ErrRunning while a run is in progress or parked, and with ErrConflict as UpdateThread does.
type Truncate struct {
	MessageID     string // the last message that stays; Index applies when it is empty
	Index         int64  // filled in when MessageID is set; -1 removes all messages
	ExpectVersion *int64
	Removed       int64 // filled in
}

// PutRelationship stores a relationship with both threads, in one transaction. The thread of Apply gets R, the peer
// gets it with the other role. When the thread already has a relationship of the same peer, type and role, nothing
// changes and Kept is the existing one. It fails with ErrNotFound when the peer does not exist, and with ErrForkPoint
// when the parent has no message R.MessageIndex.
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

// Relationship describes how a thread relates to another (REL-01). Both threads have it; it goes when one of them is
// purged.
type Relationship struct {
	ThreadID     string // the other thread
	Name         string // of the other thread's object; only filled in by reads
	Type         RelationshipType
	Role         string // of the holder
	MessageIndex int64  // of the parent's message at which it was made, as it was then; -1 for none
	CreatedAt    int64
	Comment      string
}

// MaxParents is the largest number of parents that a list shows for one thread.
const MaxParents = 20

// RelationStore is the part of a Store that keeps relationships of threads.
type RelationStore interface {
	// Relationships returns a page of a thread's relationships, oldest first, and their total number.
	Relationships(ctx context.Context, threadID string, limit, offset int) (rs []Relationship, total int64, err error)
	// NewestRelationships returns at most limit relationships of a thread, and their total number. Those in which the
	// thread is the child come first, oldest first; then those in which it is the parent, newest first.
	NewestRelationships(ctx context.Context, threadID string, limit int) (rs []Relationship, total int64, err error)
	// MessageIndex returns the number of messages before a message of a thread, silent and deeper ones included. It fails with
	// ErrNotFound when the thread has no such message.
	MessageIndex(ctx context.Context, threadID, messageID string) (int64, error)
	// RunMessages returns the messages that a run of a thread took in or wrote, in order.
	RunMessages(ctx context.Context, threadID, runID string) ([]Message, error)
	// ParentRelationships returns, by thread id, the relationships in which the given threads are the child, oldest
	// first and at most MaxParents for each.
	ParentRelationships(ctx context.Context, threadIDs []string) (map[string][]Relationship, error)
}

// EventTruncated is the type of the log entry of Truncate. Its Data is {"index", "removed"}.
const EventTruncated = "thread.truncated"
