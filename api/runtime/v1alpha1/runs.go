package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Run is one execution of a thread, from wake-up to rest.
type Run struct {
	// ID is sess_ and hex digits.
	ID string `json:"id"`
	// Agent is the agent that ran.
	Agent string `json:"agent"`
	// Status is running, waiting, succeeded, failed, stopped or terminated.
	Status string `json:"status"`
	// Reason is why it did not succeed, or what it waits for, in CamelCase.
	Reason string `json:"reason,omitempty"`
	// Message is for people. It never contains a secret.
	Message string `json:"message,omitempty"`
	// Steps is the number of steps so far.
	Steps int `json:"steps"`
	// StartedAt is in microseconds.
	StartedAt int64 `json:"startedAt"`
	// EndedAt is in microseconds, 0 while the run is not over.
	EndedAt int64 `json:"endedAt,omitempty"`
	// Usage is the usage of its model calls.
	Usage json.RawMessage `json:"usage,omitempty"`
	// SessionState is the state of the session, an object. It is absent unless code has set some.
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

// ActionRerun is the path below a run that takes it up again in a fork: POST runs/{id}/rerun.
const ActionRerun = "rerun"

// NewRerun is the body of POST runs/{id}/rerun.
type NewRerun struct {
	// Step is the step of the run to take up again, from 1: the run's first answer is step 1. The fork has what was said
	// before that answer.
	Step int `json:"step"`
	// Input replaces the content of the newest message that the step read: for step 1 mostly the message of the user, for a
	// later one mostly the result of a tool. Without it the step reads what it read before.
	Input *string `json:"input,omitempty"`
	// Name of the fork's Thread object. When it is empty, the server derives one from the thread's.
	Name string `json:"name,omitempty"`
	// Title of the fork; "Forked: X" for a thread with the title X when it is empty.
	Title string `json:"title,omitempty"`
	// AgentID is the agent of the fork. When it is empty, it is the one that the run had.
	AgentID string `json:"agentId,omitempty"`
	// IdempotencyKey makes a repeat return the fork of the first request. The header Idempotency-Key does the same.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// Ended reports whether the run is over.
func (r *Run) Ended() bool { return r.Status != RunRunning && r.Status != RunWaiting }

// RunList is a page of runs, newest first.
type RunList struct {
	metav1.TypeMeta `json:",inline"`
	// Runs is the page.
	Runs []Run `json:"runs"`
	// HasMore reports whether older runs follow.
	HasMore bool `json:"hasMore"`
}

// KindRunList is the kind of a RunList.
const KindRunList = "RunList"
