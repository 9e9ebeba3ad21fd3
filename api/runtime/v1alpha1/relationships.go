package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Subresources of how conversations branch and end.
const (
	SubresourceTruncate      Subresource = "truncate"
	SubresourceRelationships Subresource = "relationships"
)

// Truncate is the body of POST truncate: it removes all messages after one, and the relationships made past it. The queue stays. It is refused with 409 while a run is under way.
type Truncate struct {
	// MessageID of the last message that stays. Either this or messageIndex.
	MessageID string `json:"messageId,omitempty"`
	// MessageIndex of the last message that stays: the number of messages before it, silent ones and those of deeper
	// levels included. -1 removes all.
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// V is the expected version; another one is a conflict.
	V *int64 `json:"v,omitempty"`
}

// Truncated is the answer to POST truncate.
type Truncated struct {
	// MessageIndex of the last message that stayed, -1 when none did.
	MessageIndex int64 `json:"messageIndex"`
	// Removed is how many messages were removed.
	Removed int64 `json:"removed"`
}

// Relationship of a thread with another. Both ends keep it.
type Relationship struct {
	// ThreadID of the other thread.
	ThreadID string `json:"threadID"`
	// Type: fork, handoff or mention.
	Type string `json:"type"`
	// Role of this thread: parent or child.
	Role string `json:"role"`
	// MessageIndex of the parent's message at which it was made. It is one that the parent has; a truncation of the parent
	// before it removes the relationship on both ends.
	MessageIndex *int64 `json:"messageIndex,omitempty"`
	// CreatedAt in microseconds; set by the server.
	CreatedAt int64 `json:"createdAt,omitempty"`
	// Comment for people.
	Comment string `json:"comment,omitempty"`
}

// RelationshipList is a page of relationships, oldest first.
type RelationshipList struct {
	metav1.TypeMeta `json:",inline"`
	// Relationships of the page.
	Relationships []Relationship `json:"relationships"`
	// Total over all pages.
	Total int64 `json:"total"`
	// HasMore tells that there are more beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindRelationshipList is the kind of a RelationshipList.
const KindRelationshipList = "RelationshipList"
