package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FiringList is what a ScheduledEffect fired, the newest due time first, and what it did not fire.
type FiringList struct {
	metav1.TypeMeta `json:",inline"`
	// Firings is the page.
	Firings []Firing `json:"firings"`
	// Skipped are records of due times that did not fire, the newest first. Only the first page has them.
	Skipped []SkippedFirings `json:"skipped"`
	// Next are the next due times, at most ten, the first one first, in microseconds since 1970. Only the first page has them. They do not fire
	// while the ScheduledEffect is suspended or paused, or its limit of the day is reached.
	Next []int64 `json:"next,omitempty"`
	// HasMore reports whether more firings follow: request them with continue.
	HasMore bool `json:"hasMore"`
	// Continue is where the next page begins; empty when no more firings follow.
	Continue string `json:"continue,omitempty"`
}

// KindFiringList is the kind of a FiringList.
const KindFiringList = "FiringList"

// Firing is one due time of a ScheduledEffect for one thread, or for none. Times are microseconds since 1970, 0 for none.
type Firing struct {
	// Due is the due time.
	Due int64 `json:"due"`
	// ThreadID is the thread for which it fired.
	ThreadID string `json:"threadId,omitempty"`
	// Thread is the name of the Thread that a threadTemplate made, which may be deleted since.
	Thread string `json:"thread,omitempty"`
	// Origin is schedule, catch-up, creation, manual or backfill. The time of a one-time effect counts as its schedule.
	Origin string `json:"origin,omitempty"`
	// Status is pending, queued, running, succeeded, failed or canceled.
	Status string `json:"status"`
	// Attempts is how many were made. The Thread of a threadTemplate is one.
	Attempts int `json:"attempts,omitempty"`
	// Error says why the last attempt failed.
	Error string `json:"error,omitempty"`
	// Waiting says what the firing waits for.
	Waiting string `json:"waiting,omitempty"`
	// FiredAt is when the firing was recorded.
	FiredAt int64 `json:"firedAt"`
	// StartedAt is when the first attempt began.
	StartedAt int64 `json:"startedAt,omitempty"`
	// EndedAt is when it ended.
	EndedAt int64 `json:"endedAt,omitempty"`
	// Cost of the thread that it created, in US dollars.
	Cost float64 `json:"cost,omitempty"`
	// Log is what its code wrote, when it has no thread whose log has it.
	Log string `json:"log,omitempty"`
}

// CancelFiring names the firing of a ScheduledEffect that is to be canceled.
type CancelFiring struct {
	// Due is the due time of the firing, in microseconds since 1970.
	Due int64 `json:"due"`
	// ThreadID is the thread for which it fired, in any form of its id. A due time that fired for several threads needs it.
	ThreadID string `json:"threadId,omitempty"`
}

// ActionCancelFiring is the path below a ScheduledEffect's firings that cancels one of them.
const ActionCancelFiring = "cancel"

// SkippedFirings records due times that did not fire. Times are microseconds since 1970.
type SkippedFirings struct {
	// Due is the first due time.
	Due int64 `json:"due"`
	// Until is the last due time.
	Until int64 `json:"until"`
	// Count of the due times.
	Count int64 `json:"count"`
	// ThreadID is set when they did not fire for one thread only.
	ThreadID string `json:"threadId,omitempty"`
	// Reason is Missed, Suspended, Paused, Forbidden, LimitReached, TooManyThreads or NoThreadMatches.
	Reason string `json:"reason"`
	// Detail says more, for people.
	Detail string `json:"detail,omitempty"`
}
