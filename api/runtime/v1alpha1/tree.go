package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewEffect is the body of POST effects.
type NewEffect struct {
	// Name of an Effect, or package/effect.
	Name string `json:"name"`
	// Args for the handler, an object.
	Args json.RawMessage `json:"args,omitempty"`
	// Delay in milliseconds, 0 = now.
	Delay int64 `json:"delay,omitempty"`
	// IdempotencyKey makes a repeat schedule nothing new; the header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// EffectID is the answer to POST effects.
type EffectID struct {
	// ID of the scheduled effect, a UUID.
	ID string `json:"id"`
}

// Effect is a pending effect.
type Effect struct {
	// ID, a UUID.
	ID string `json:"id"`
	// Name as scheduled.
	Name string `json:"name"`
	// Args for the handler.
	Args json.RawMessage `json:"args,omitempty"`
	// ScheduledAt is the due time in microseconds.
	ScheduledAt int64 `json:"scheduledAt"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"createdAt"`
}

// EffectList is a page of pending effects.
type EffectList struct {
	metav1.TypeMeta `json:",inline"`
	// Effects of the page.
	Effects []Effect `json:"effects"`
	// HasMore tells that there are effects beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindEffectList is the kind of an EffectList.
const KindEffectList = "EffectList"

// Child is the registry entry of a child.
type Child struct {
	// Reference of the child within its parent.
	Reference string `json:"reference"`
	// Name of the kind of child, as the agent lists it.
	Name string `json:"name"`
	// Title for people.
	Title string `json:"title,omitempty"`
	// Description of its task.
	Description string `json:"description,omitempty"`
	// Resumable: lives on after its result.
	Resumable bool `json:"resumable"`
	// Blocking: the parent waits for it.
	Blocking bool `json:"blocking"`
	// ThreadName is the name of the child's Thread object.
	ThreadName string `json:"threadName,omitempty"`
	// ThreadID of the child.
	ThreadID string `json:"threadId,omitempty"`
	// SpawnGroupID is shared by children that one step made.
	SpawnGroupID string `json:"spawnGroupId,omitempty"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"createdAt,omitempty"`
	// Status: pending, running, completed, failed, terminated, or what the child set itself.
	Status string `json:"status"`
	// ParentCommunication: implicit or explicit.
	ParentCommunication string `json:"parentCommunication,omitempty"`
}

// ChildList is a page of children, oldest first.
type ChildList struct {
	metav1.TypeMeta `json:",inline"`
	// Children of the page.
	Children []Child `json:"children"`
	// HasMore tells that there are children beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindChildList is the kind of a ChildList.
const KindChildList = "ChildList"

// Stop is the body of POST stop and POST terminate; it may be left out.
type Stop struct {
	// Message for people, kept with the run that was stopped.
	Message string `json:"message,omitempty"`
}
