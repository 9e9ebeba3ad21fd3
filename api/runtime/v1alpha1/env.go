package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds of answers about variables.
const (
	KindEnvVar     = "EnvVar"
	KindEnvVarList = "EnvVarList"
	KindEnvRequest = "EnvRequest"
)

// EnvRequestPath is where, below the subresource env, the pending request is.
const EnvRequestPath = "pending"

// Types of variables.
const (
	EnvText   = "text"
	EnvSecret = "secret"
)

// EnvVar is a variable as a thread sees it.
type EnvVar struct {
	metav1.TypeMeta `json:",inline"`

	Name string `json:"name"`
	// Type: text or secret.
	Type string `json:"type"`
	// Source that it comes from: thread, user, instance, agent or prompt.
	Source string `json:"source"`
	// Side that sees it, a or b, in a list of what both sides of an agent see, where they see different things.
	Side string `json:"side,omitempty"`
	// Origin of a thread's own: set (by setEnv), spec (of the object) or inherited (from the parent).
	Origin string `json:"origin,omitempty"`
	// Value of a text. That of a secret is never shown.
	Value *string `json:"value,omitempty"`
	// UpdatedAt of a thread's own, in microseconds.
	UpdatedAt int64 `json:"updatedAt,omitempty"`
}

// EnvVarList is a page of variables, by name.
type EnvVarList struct {
	metav1.TypeMeta `json:",inline"`

	Variables []EnvVar `json:"variables"`
	HasMore   bool     `json:"hasMore"`
}

// NewEnvValue sets a variable.
type NewEnvValue struct {
	// Value: at most 32 KiB of text.
	Value *string `json:"value"`
	// Type: text or secret; when empty the one that it has, secret for a new one.
	Type string `json:"type,omitempty"`
}

// EnvRequest says which variables keep a thread from running; none when it does not wait.
type EnvRequest struct {
	metav1.TypeMeta `json:",inline"`

	// RunID of the run that waits, and since when, in microseconds.
	RunID string `json:"runId,omitempty"`
	Since int64  `json:"since,omitempty"`
	// Variables to set.
	Variables []EnvWanted `json:"variables"`
}

// EnvWanted is a variable that a thread waits for.
type EnvWanted struct {
	Name string `json:"name"`
	// Type that its agent declares.
	Type string `json:"type"`
	// Scoped: the parent's value is not inherited.
	Scoped bool `json:"scoped,omitempty"`
	// Description of it, in the words of its agent or prompt.
	Description string `json:"description,omitempty"`
}
