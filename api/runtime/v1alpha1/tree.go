package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewEffect is the body of POST effects.
type NewEffect struct {
	// Name is the name of an Effect, or package/effect.
	Name string `json:"name"`
	// Args is the object for the handler.
	Args json.RawMessage `json:"args,omitempty"`
	// Delay is in milliseconds. 0 means now.
	Delay int64 `json:"delay,omitempty"`
	// IdempotencyKey makes a repeat of the request schedule nothing new; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// EffectID is the answer to POST effects.
type EffectID struct {
	// ID is the id of the scheduled effect, a UUID.
	ID string `json:"id"`
}

// Effect is a pending effect.
type Effect struct {
	// ID is a UUID.
	ID string `json:"id"`
	// Name is the name as it was scheduled.
	Name string `json:"name"`
	// Args is the object for the handler.
	Args json.RawMessage `json:"args,omitempty"`
	// ScheduledAt is the due time in microseconds.
	ScheduledAt int64 `json:"scheduledAt"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// EffectList is a page of pending effects.
type EffectList struct {
	metav1.TypeMeta `json:",inline"`
	// Effects is the page.
	Effects []Effect `json:"effects"`
	// HasMore reports whether more effects follow.
	HasMore bool `json:"hasMore"`
}

// KindEffectList is the kind of an EffectList.
const KindEffectList = "EffectList"

// Child is the registry entry of a child.
type Child struct {
	// Reference identifies the child within its parent.
	Reference string `json:"reference"`
	// Name is the name of the kind of child, as the agent lists it.
	Name string `json:"name"`
	// Title is for people.
	Title string `json:"title,omitempty"`
	// Description is about its task.
	Description string `json:"description,omitempty"`
	// Resumable is true when the child continues to exist after its result.
	Resumable bool `json:"resumable"`
	// Blocking is true when the parent waits for it.
	Blocking bool `json:"blocking"`
	// ThreadName is the name of the child's Thread object.
	ThreadName string `json:"threadName,omitempty"`
	// ThreadID is the id of the child's thread.
	ThreadID string `json:"threadId,omitempty"`
	// SpawnGroupID is the id of the parent's run that created the child.
	SpawnGroupID string `json:"spawnGroupId,omitempty"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt,omitempty"`
	// Status is pending, running, completed, failed, terminated, or a status that the child set itself.
	Status string `json:"status"`
	// ParentCommunication is implicit or explicit.
	ParentCommunication string `json:"parentCommunication,omitempty"`
}

// ChildList is a page of children, oldest first.
type ChildList struct {
	metav1.TypeMeta `json:",inline"`
	// Children is the page.
	Children []Child `json:"children"`
	// HasMore reports whether more children follow.
	HasMore bool `json:"hasMore"`
}

// KindChildList is the kind of a ChildList.
const KindChildList = "ChildList"

// Stop is the body of POST stop and POST terminate. It is optional.
type Stop struct {
	// Message is for people. It is stored with the run that was stopped.
	Message string `json:"message,omitempty"`
}
