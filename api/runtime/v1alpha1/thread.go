package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ThreadRecord is the stored record of a thread. metadata.name is the name of the Thread object, and metadata.uid is
// the thread's id.
type ThreadRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// AgentID is the agent that runs the thread now.
	AgentID string `json:"agentId"`
	// OriginAgentID is the agent that the thread was created with.
	OriginAgentID string `json:"originAgentId,omitempty"`
	// UserID is the user of the conversation, null when there is none.
	UserID *string `json:"userId"`
	// TaskID is an id of the creator's own.
	TaskID string `json:"taskId,omitempty"`
	// Title is for people.
	Title string `json:"title,omitempty"`
	// Arguments holds the arguments of the thread, {} when it has none.
	Arguments json.RawMessage `json:"arguments"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt"`
	// LastActivityAt is in microseconds.
	LastActivityAt int64 `json:"lastActivityAt,omitempty"`

	// OriginThreadID is the thread that this one was forked from.
	OriginThreadID string `json:"originThreadID,omitempty"`
	// ForkPointIndex is the index of the last message that the fork shares with its origin.
	ForkPointIndex *int64 `json:"forkPointIndex,omitempty"`

	// ParentID is the thread that this one is a child of.
	ParentID string `json:"parentId,omitempty"`
	// RootID is the outermost ancestor, or the thread itself when it has no parent.
	RootID string `json:"rootId,omitempty"`
	// Reference identifies a child within its parent.
	Reference string `json:"reference,omitempty"`
	// Depth is the level below the outermost ancestor, 0 for the ancestor itself.
	Depth int `json:"depth"`

	ThreadFields `json:",inline"`

	// Terminated is when the thread was terminated, in microseconds; null while it is active.
	Terminated *int64 `json:"terminated"`
	// TerminatedReason is in CamelCase.
	TerminatedReason string `json:"terminatedReason,omitempty"`

	// Destroyed is when the conversation was last cleared, in microseconds; null when it never was.
	Destroyed *int64 `json:"destroyed"`
	// DestroyedReason is explicit or expired.
	DestroyedReason string `json:"destroyedReason,omitempty"`
	// IdleExpiry is after how long without a change the conversation is destroyed, in microseconds. 0 means never.
	IdleExpiry int64 `json:"idleExpiry,omitempty"`
	// Parked is true when a user has stopped a run, so that queued messages wait until the next user message or a
	// continue.
	Parked bool `json:"parked,omitempty"`
	// Retained is since when the thread has been kept without a Thread object, in microseconds. It is null when it
	// has one.
	Retained *int64 `json:"retained,omitempty"`

	// V is the version, which grows by one with each committed change.
	V int64 `json:"v"`
	// MessageCount is the number of stored messages.
	MessageCount int64 `json:"messageCount"`
	// QueuedCount is the number of messages that wait in the queue.
	QueuedCount int64 `json:"queuedCount"`
	// LastEvent is the sequence number of the newest event. A stream of the events after it misses none.
	LastEvent int64 `json:"lastEvent"`
	// LastRun is the newest run, or null when there was none.
	LastRun *Run `json:"lastRun"`
}

// KindThreadRecord is the kind of a ThreadRecord.
const KindThreadRecord = "ThreadRecord"
