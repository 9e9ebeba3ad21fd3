package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ThreadHistory is a thread as lists show it. It contains no messages.
type ThreadHistory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// V is the version, which grows by one with each committed change.
	V int64 `json:"v"`
	// Created is when the thread was created, in microseconds.
	Created int64 `json:"created"`
	// Title is for people, null when there is none.
	Title *string `json:"title"`
	// AgentID is the agent that runs the thread now.
	AgentID string `json:"agentId"`
	// UserID is the user of the conversation, null when there is none.
	UserID *string `json:"userId"`
	// TaskID is an id of the creator's own.
	TaskID string `json:"taskId,omitempty"`
	// UserLastInteractedAt is when the newest message of a user came, or else when the thread was created, in
	// microseconds.
	UserLastInteractedAt int64 `json:"userLastInteractedAt"`
	// LastActivityAt is when anything was last written, in microseconds. Lists are in this order.
	LastActivityAt int64 `json:"lastActivityAt"`
	// Workspace is what the thread works on.
	Workspace *Workspace `json:"workspace,omitempty"`
	// OriginThreadID is the thread that this one was forked from.
	OriginThreadID string `json:"originThreadID,omitempty"`
	// MainThreadID is the outermost ancestor of a subagent's thread. It is absent for other threads.
	MainThreadID string `json:"mainThreadID,omitempty"`
	// ParentRelationships lists the first 20 relationships in which the thread is the child.
	ParentRelationships []Relationship `json:"parentRelationships"`
	// SummaryStats has figures of the thread.
	SummaryStats SummaryStats `json:"summaryStats"`
	// AgentMode is a mode of the caller's own.
	AgentMode string `json:"agentMode,omitempty"`
	// Archived is true for an archived thread, which lists contain only on request.
	Archived bool `json:"archived"`
	// Terminated is when the thread was terminated, in microseconds; null while it is active.
	Terminated *int64 `json:"terminated"`
}

// SummaryStats has figures of a thread.
type SummaryStats struct {
	// DiffStats counts changes of the thread's files.
	DiffStats DiffStats `json:"diffStats"`
	// MessageCount is how many messages are stored.
	MessageCount int64 `json:"messageCount"`
}

// DiffStats counts the changes of the thread's own files since its creation, in files, not in lines. Skein sees only
// files, not the trees of a workspace elsewhere.
type DiffStats struct {
	// Added is the number of new files.
	Added int64 `json:"added"`
	// Changed is the number of files whose content was replaced.
	Changed int64 `json:"changed"`
	// Removed is the number of removed files.
	Removed int64 `json:"removed"`
}

// ThreadHistoryList is a page of threads, newest activity first.
type ThreadHistoryList struct {
	metav1.TypeMeta `json:",inline"`
	// ListMeta has the token for the next page in continue.
	metav1.ListMeta `json:"metadata"`
	// Items is the page.
	Items []ThreadHistory `json:"items"`
	// HasMore reports whether more threads follow.
	HasMore bool `json:"hasMore"`
}

// Kinds of the history.
const (
	KindThreadHistory     = "ThreadHistory"
	KindThreadHistoryList = "ThreadHistoryList"
)

// Names of the server-sent events of GET history?watch=true. The data of both is a ThreadHistoryList: with
// HistoryChangedEvent the threads that have changed, as they are now. HistoryResetEvent says that any may have changed,
// so that the client has to list again.
const (
	HistoryChangedEvent = "history.changed"
	HistoryResetEvent   = "history.reset"
)
