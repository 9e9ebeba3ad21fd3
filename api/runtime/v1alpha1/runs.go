package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Run is one execution of a thread, from wake-up to rest.
type Run struct {
	// ID, sess_ and hex digits.
	ID string `json:"id"`
	// Agent that ran.
	Agent string `json:"agent"`
	// Status: running, waiting, succeeded, failed, stopped or terminated.
	Status string `json:"status"`
	// Reason in CamelCase when it did not succeed, or what it waits for.
	Reason string `json:"reason,omitempty"`
	// Message for people; never holds a secret.
	Message string `json:"message,omitempty"`
	// Steps made so far.
	Steps int `json:"steps"`
	// StartedAt in microseconds.
	StartedAt int64 `json:"startedAt"`
	// EndedAt in microseconds, 0 while it is under way.
	EndedAt int64 `json:"endedAt,omitempty"`
	// Usage of its model calls.
	Usage json.RawMessage `json:"usage,omitempty"`
	// SessionState is the state of the session, an object, when code has set any.
	SessionState json.RawMessage `json:"sessionState,omitempty"`
}

// Statuses of a run.
const (
	RunRunning    = "running"
	RunWaiting    = "waiting"
	RunSucceeded  = "succeeded"
	RunFailed     = "failed"
	RunStopped    = "stopped"
	RunTerminated = "terminated"
)

// ActionCancel is the path below a run that ends it: POST runs/{id}/cancel.
const ActionCancel = "cancel"

// Ended tells whether the run is over.
func (r *Run) Ended() bool { return r.Status != RunRunning && r.Status != RunWaiting }

// RunList is a page of runs, newest first.
type RunList struct {
	metav1.TypeMeta `json:",inline"`
	// Runs of the page.
	Runs []Run `json:"runs"`
	// HasMore tells that there are older runs.
	HasMore bool `json:"hasMore"`
}

// KindRunList is the kind of a RunList.
const KindRunList = "RunList"
