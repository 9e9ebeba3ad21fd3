package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ThreadHistory is a thread as lists show it. Making one reads no message.
type ThreadHistory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// V is the version, which grows by one with each committed change.
	V int64 `json:"v"`
	// Created is when the thread was made, in microseconds.
	Created int64 `json:"created"`
	// Title for people, null when it has none.
	Title *string `json:"title"`
	// AgentID is the agent that runs the thread now.
	AgentID string `json:"agentId"`
	// UserID of the person that the conversation is with, null when there is none.
	UserID *string `json:"userId"`
	// TaskID of the creator's own.
	TaskID string `json:"taskId,omitempty"`
	// UserLastInteractedAt is when the newest message of a user came, or else when the thread was made, in
	// microseconds.
	UserLastInteractedAt int64 `json:"userLastInteractedAt"`
	// LastActivityAt is when anything was last written, in microseconds: the order of the list.
	LastActivityAt int64 `json:"lastActivityAt"`
	// Workspace is what the thread works on.
	Workspace *Workspace `json:"workspace,omitempty"`
	// OriginThreadID is the thread that this one was forked from.
	OriginThreadID string `json:"originThreadID,omitempty"`
	// MainThreadID is the outermost ancestor of a subagent's thread, left out of others.
	MainThreadID string `json:"mainThreadID,omitempty"`
	// ParentRelationships are those in which the thread is the child; the first 20.
	ParentRelationships []Relationship `json:"parentRelationships"`
	// SummaryStats in figures.
	SummaryStats SummaryStats `json:"summaryStats"`
	// AgentMode is a mode of the caller's own.
	AgentMode string `json:"agentMode,omitempty"`
	// Archived threads are listed only when they are asked for.
	Archived bool `json:"archived"`
	// Terminated is when the thread was terminated, in microseconds; null while it is active.
	Terminated *int64 `json:"terminated"`
}

// SummaryStats are figures of a thread.
type SummaryStats struct {
	// DiffStats of the thread's files.
	DiffStats DiffStats `json:"diffStats"`
	// MessageCount is how many messages are stored.
	MessageCount int64 `json:"messageCount"`
}

// DiffStats counts what has happened to the thread's own files since it was made, in files, not in lines: Skein
// sees files, not the trees of a workspace elsewhere.
type DiffStats struct {
	// Added: written where there was none.
	Added int64 `json:"added"`
	// Changed: replaced by other contents.
	Changed int64 `json:"changed"`
	// Removed.
	Removed int64 `json:"removed"`
}

// ThreadHistoryList is a page of threads, newest activity first.
type ThreadHistoryList struct {
	metav1.TypeMeta `json:",inline"`
	// ListMeta has in continue what to ask for the next page with.
	metav1.ListMeta `json:"metadata"`
	// Items of the page.
	Items []ThreadHistory `json:"items"`
	// HasMore tells that there are threads beyond this page.
	HasMore bool `json:"hasMore"`
}

// Kinds of the history.
const (
	KindThreadHistory     = "ThreadHistory"
	KindThreadHistoryList = "ThreadHistoryList"
)
