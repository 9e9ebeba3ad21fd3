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

// EnvRequestPath is the path of the pending request below the subresource env.
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
	// Type is text or secret.
	Type string `json:"type"`
	// Source is where the variable comes from: thread, user, instance, agent or prompt.
	Source string `json:"source"`
	// Side is the side that sees it, a or b, in a list of both sides where they see different values.
	Side string `json:"side,omitempty"`
	// Origin says how a variable of the thread itself was set: set (by setEnv), spec (of the object) or inherited
	// (from the parent).
	Origin string `json:"origin,omitempty"`
	// Value is the value of a text. The value of a secret is never shown.
	Value *string `json:"value,omitempty"`
	// UpdatedAt is when a variable of the thread itself was set, in microseconds.
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
	// Value is at most 32 KiB of text.
	Value *string `json:"value"`
	// Type is text or secret. When empty, the variable keeps its type, and a new one is a secret.
	Type string `json:"type,omitempty"`
}

// EnvRequest lists the variables that keep a thread from running. It is empty when the thread does not wait.
type EnvRequest struct {
	metav1.TypeMeta `json:",inline"`

	// RunID is the run that waits. Since is when it began to wait, in microseconds.
	RunID string `json:"runId,omitempty"`
	Since int64  `json:"since,omitempty"`
	// Variables lists the variables to set.
	Variables []EnvWanted `json:"variables"`
}

// EnvWanted is a variable that a thread waits for.
type EnvWanted struct {
	Name string `json:"name"`
	// Type is the type that its agent declares.
	Type string `json:"type"`
	// Scoped is true when the parent's value is not inherited.
	Scoped bool `json:"scoped,omitempty"`
	// Description is the text of its agent or prompt.
	Description string `json:"description,omitempty"`
}
