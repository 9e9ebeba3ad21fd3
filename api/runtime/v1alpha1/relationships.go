package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Truncate is the body of POST truncate. It removes all messages after a given one, and the relationships made after
// it. The queue stays. During a run it is refused with 409.
type Truncate struct {
	// MessageID is the id of the last message to keep. Set either this or messageIndex.
	MessageID string `json:"messageId,omitempty"`
	// MessageIndex is the index of the last message to keep: the number of messages before it, including silent ones
	// and those of deeper levels. -1 removes all.
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// V is the expected version. Another version is a conflict.
	V *int64 `json:"v,omitempty"`
}

// Truncated is the answer to POST truncate.
type Truncated struct {
	// MessageIndex is the index of the last kept message, -1 when none was kept.
	MessageIndex int64 `json:"messageIndex"`
	// Removed is how many messages were removed.
	Removed int64 `json:"removed"`
}

// Relationship links a thread with another one. It is stored at both ends.
type Relationship struct {
	// ThreadID is the id of the other thread.
	ThreadID string `json:"threadID"`
	// Type is fork, handoff or mention.
	Type string `json:"type"`
	// Role is the role of this thread: parent or child.
	Role string `json:"role"`
	// MessageIndex is the index of the parent's message at which it was made. The parent must have that message. A
	// truncation of the parent before it removes the relationship at both ends.
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// CreatedAt is in microseconds. The server sets it.
	CreatedAt int64 `json:"createdAt,omitempty"`
	// Comment is for people.
	Comment string `json:"comment,omitempty"`
}

// RelationshipList is a page of relationships, oldest first.
type RelationshipList struct {
	metav1.TypeMeta `json:",inline"`
	// Relationships is the page.
	Relationships []Relationship `json:"relationships"`
	// Total is the number over all pages.
	Total int64 `json:"total"`
	// HasMore reports whether more follow.
	HasMore bool `json:"hasMore"`
}

// KindRelationshipList is the kind of a RelationshipList.
const KindRelationshipList = "RelationshipList"
