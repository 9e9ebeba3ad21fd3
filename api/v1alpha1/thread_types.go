package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ThreadSpec declares a conversation.
// +kubebuilder:validation:XValidation:rule="(has(self.arguments) == has(oldSelf.arguments)) && (!has(self.arguments) || self.arguments == oldSelf.arguments)",message="arguments are fixed when the thread is created: create a new Thread for other arguments"
// +kubebuilder:validation:XValidation:rule="!has(self.handoffPolicy) || self.handoffPolicy != 'Never' || self.agentRef == oldSelf.agentRef",message="the thread stays with its agent (handoffPolicy: Never): set handoffPolicy: Allow to hand it over, or create a new Thread"
// +kubebuilder:validation:XValidation:rule="(has(self.userID) == has(oldSelf.userID)) && (!has(self.userID) || self.userID == oldSelf.userID)",message="userID is fixed when the thread is created: create a new Thread for another user"
// +kubebuilder:validation:XValidation:rule="(has(self.threadID) == has(oldSelf.threadID)) && (!has(self.threadID) || self.threadID == oldSelf.threadID)",message="threadID is fixed when the thread is created: create a new Thread to adopt other data"
// +kubebuilder:validation:XValidation:rule="(has(self.taskID) == has(oldSelf.taskID)) && (!has(self.taskID) || self.taskID == oldSelf.taskID)",message="taskID is fixed when the thread is created: create a new Thread for another task"
// +kubebuilder:validation:XValidation:rule="(has(self.forkFrom) == has(oldSelf.forkFrom)) && (!has(self.forkFrom) || self.forkFrom == oldSelf.forkFrom)",message="forkFrom is fixed when the thread is created: create a new Thread for another fork"
// +kubebuilder:validation:XValidation:rule="!has(self.forkFrom) || !has(self.threadID)",message="set forkFrom for a new thread, or threadID to adopt data that exists, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || size(self.message) == 0 || (has(oldSelf.message) && self.message == oldSelf.message)",message="message is queued once, when the thread is created, and may only be left out later: send another one with kubectl skein send, or create a new Thread"
type ThreadSpec struct {
	// AgentRef names the Agent that runs the conversation. A change hands the conversation over: at once
	// while it rests, before the next model call while a run is under way. What the conversation itself hands over shows
	// in status.agent and lasts until this field changes again.
	AgentRef LocalRef `json:"agentRef"`

	// HandoffPolicy says whether the conversation may pass to another agent. Never: calls that would hand
	// it over are refused, and agentRef is fixed. The agent's handoffPolicy holds when it is absent.
	// +optional
	HandoffPolicy HandoffPolicy `json:"handoffPolicy,omitempty"`

	// Title for people. Leaving it out later keeps the title that the thread has.
	// +kubebuilder:validation:MaxLength=500
	// +optional
	Title string `json:"title,omitempty"`

	// UserID of the person that the conversation is with.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	UserID string `json:"userID,omitempty"`

	// TaskID of the creator's own, for context. Fixed when the thread is created.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TaskID string `json:"taskID,omitempty"`

	// Arguments of the thread, an object; given to tools as state.arguments and to prompts.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`

	// Message is queued once, as the first user message, when the thread is created. It may be left out later, which
	// changes nothing, but not set or changed: further messages are sent with kubectl skein send or the runtime API.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Message string `json:"message,omitempty"`

	// IdleExpiry destroys the conversation when nothing has happened in it for so long: messages,
	// queue and thread state go, files, values and environment stay. 0s means never; the agent's
	// threadIdleExpiry holds when it is absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('87600h'))",message="give 0s for never, or a duration from 1s to 87600h such as 1h"
	// +optional
	IdleExpiry *metav1.Duration `json:"idleExpiry,omitempty"`

	// DeletionPolicy says what happens to the stored data when this object is deleted. Delete purges it. Retain keeps
	// it until a Thread adopts it by spec.threadID, or until it is purged.
	// +kubebuilder:default=Delete
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// ThreadID is the id, a UUID in lower case, of retained data that this Thread adopts. The
	// thread's id is this object's own UID when it is absent.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')`,message="write the UUID of the data in lower case, such as 6f1c0a3e-8a44-4c0e-9d0b-2f6f2b9f4f10: kubectl skein retained shows it"
	// +optional
	ThreadID string `json:"threadID,omitempty"`

	// ForkFrom makes this a fork: it begins with the messages of another Thread up to one of them, and with its files. It also
	// has that thread's user, arguments and workspace, and its title with "Forked: " in front, where this spec gives none.
	// Later changes of one do not show in the other. Fixed when the thread is created.
	// +optional
	ForkFrom *ForkFrom `json:"forkFrom,omitempty"`

	// FileQuota limits the files of the thread.
	// +optional
	FileQuota *FileQuota `json:"fileQuota,omitempty"`

	// Env are variables of this thread, which its subagents inherit. A value that state.setEnv has set takes
	// precedence over an entry until the entry changes.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(e, (has(e.value) || has(e.valueFrom)) && !has(e.scoped) && !has(e.required))",message="a variable of a Thread needs value or valueFrom, and neither scoped nor required, which are for Agents and Prompts"
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// RunPolicy says what happens to a user's message that arrives during a run and has no policy of its own. When it
	// is absent, the policy of the agent holds, and enqueue without one.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// Limits bound each run. If the thread and its agent both have a limit, the lower one holds.
	// +optional
	Limits *RunLimits `json:"limits,omitempty"`
}

// DeletionPolicy says what happens to a thread's data when its object is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete"
	DeletionRetain DeletionPolicy = "Retain"
)

// RunOutcome says how a run ended.
// +kubebuilder:validation:Enum=Succeeded;Failed;Stopped;Terminated
type RunOutcome string

// Every outcome of a run.
const (
	RunSucceeded  RunOutcome = "Succeeded"
	RunFailed     RunOutcome = "Failed"
	RunStopped    RunOutcome = "Stopped"
	RunTerminated RunOutcome = "Terminated"
)

// RunStatus is the last run in short.
type RunStatus struct {
	// ID of the run, sess_ and hex digits.
	ID string `json:"id"`

	// Outcome once it has ended; absent while it runs.
	// +optional
	Outcome RunOutcome `json:"outcome,omitempty"`

	// Reason in CamelCase when it did not succeed, or was ended by the agent's maxSessionTurns.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people beside a reason; never holds a secret.
	// +optional
	Message string `json:"message,omitempty"`

	// Steps that the run made.
	// +optional
	Steps int32 `json:"steps,omitempty"`

	// StartTime of the run.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// CompletionTime of the run.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// ChildStatus is a registry entry of a child.
type ChildStatus struct {
	// Reference of the child within its parent.
	Reference string `json:"reference"`
	// Name of the kind of child, as the agent lists it.
	Name string `json:"name"`
	// Title for people.
	// +optional
	Title string `json:"title,omitempty"`
	// Description of its task.
	// +optional
	Description string `json:"description,omitempty"`
	// Resumable: lives on after its result.
	// +optional
	Resumable bool `json:"resumable,omitempty"`
	// Blocking: the parent waits for it.
	// +optional
	Blocking bool `json:"blocking,omitempty"`
	// ThreadName of the child's Thread object.
	// +optional
	ThreadName string `json:"threadName,omitempty"`
	// ThreadID of the child.
	// +optional
	ThreadID string `json:"threadID,omitempty"`
	// SpawnGroupID is the id of the run of the parent that made the child.
	// +optional
	SpawnGroupID string `json:"spawnGroupId,omitempty"`
	// CreatedAt in microseconds since 1970.
	// +optional
	CreatedAt int64 `json:"createdAt,omitempty"`
	// Status: pending, running, completed, failed, terminated, or what the child set itself.
	Status string `json:"status"`
	// ParentCommunication of the child.
	// +optional
	ParentCommunication ParentCommunication `json:"parentCommunication,omitempty"`
}

// Bounds of ThreadStatus.Children, so that a status write stays small. The rest are found by label.
const (
	// MaxStatusChildren is the largest number of entries.
	MaxStatusChildren = 50
	// MaxStatusChildrenBytes is the largest size of all entries as JSON.
	MaxStatusChildrenBytes = 16 << 10
	// MaxStatusChildText is how much of a title and of a description an entry has, in bytes.
	MaxStatusChildText = 200
)

// ChildCounts counts children by their state.
type ChildCounts struct {
	// Pending children have not run yet.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Running children work, or have a status that they set themselves.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Completed children have returned a result. Those that are resumable live on.
	// +optional
	Completed int32 `json:"completed,omitempty"`
	// Failed children have returned a failure, or could not be created.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Terminated children were ended.
	// +optional
	Terminated int32 `json:"terminated,omitempty"`
}

// ThreadStatus summarizes a conversation, which Skein keeps in its store.
type ThreadStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase in one word: Pending, Idle, Running, Waiting, Parked (messages wait for the next user message or a
	// continue), Terminated.
	// +optional
	Phase string `json:"phase,omitempty"`

	// ThreadID is the identity: spec.threadID, else the UID of this object.
	// +optional
	ThreadID string `json:"threadID,omitempty"`

	// Agent that runs it now.
	// +optional
	Agent string `json:"agent,omitempty"`

	// OriginAgent is the agent that it was made with.
	// +optional
	OriginAgent string `json:"originAgent,omitempty"`

	// Conditions: Ready, Executing, Terminated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// LastRun is the newest run.
	// +optional
	LastRun *RunStatus `json:"lastRun,omitempty"`

	// Messages that the thread holds.
	// +optional
	Messages int64 `json:"messages,omitempty"`

	// QueuedMessages that wait to be taken.
	// +optional
	QueuedMessages int64 `json:"queuedMessages,omitempty"`

	// Usage is what its ended runs used in all; absent before the first has ended.
	// +optional
	Usage *UsageStatus `json:"usage,omitempty"`

	// LastActivityTime of the conversation.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`

	// Parent is the Thread that this one is a child of.
	// +optional
	Parent string `json:"parent,omitempty"`

	// OriginThreadID is the id of the thread that this one was forked from. It stays when that thread is deleted.
	// +optional
	OriginThreadID string `json:"originThreadID,omitempty"`

	// ForkPointIndex is the index of the last message that the fork began with.
	// +optional
	ForkPointIndex *int64 `json:"forkPointIndex,omitempty"`

	// MainThreadID is the id of the outermost ancestor of a subagent's thread.
	// +optional
	MainThreadID string `json:"mainThreadID,omitempty"`

	// Relationships with other threads, at most 20: those in which this thread is the child come first, then the newest.
	// +listType=map
	// +listMapKey=threadID
	// +listMapKey=type
	// +listMapKey=role
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Relationships []RelationshipStatus `json:"relationships,omitempty"`

	// RelationshipCount is how many relationships there are in all.
	// +optional
	RelationshipCount int64 `json:"relationshipCount,omitempty"`

	// Children: those that have not finished first, each group newest first; at most 50, and 16 KiB. Long titles and
	// descriptions are cut.
	// +listType=map
	// +listMapKey=reference
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Children []ChildStatus `json:"children,omitempty"`

	// ChildCount is how many children there are in all.
	// +optional
	ChildCount int32 `json:"childCount,omitempty"`

	// ChildCounts are the numbers of children by their state; absent while there are none.
	// +optional
	ChildCounts *ChildCounts `json:"childCounts,omitempty"`

	// Destroyed says when the conversation was last cleared, and why; absent when it never was.
	// +optional
	Destroyed *DestroyedStatus `json:"destroyed,omitempty"`

	// TerminatedAt in microseconds since 1970; absent while active.
	// +optional
	TerminatedAt int64 `json:"terminatedAt,omitempty"`
}

// UsageStatus sums what ended runs of a thread used, and the tasks that followed them.
type UsageStatus struct {
	// Runs that have ended.
	Runs int64 `json:"runs"`
	// Turns are model calls.
	// +optional
	Turns int64 `json:"turns,omitempty"`
	// InputTokens that models read, CacheReadTokens among them.
	// +optional
	InputTokens int64 `json:"inputTokens,omitempty"`
	// OutputTokens that models wrote.
	// +optional
	OutputTokens int64 `json:"outputTokens,omitempty"`
	// CacheReadTokens that came from a provider's cache.
	// +optional
	CacheReadTokens int64 `json:"cacheReadTokens,omitempty"`
	// Cost in US dollars, as a decimal number; absent where the models have no prices.
	// +optional
	Cost string `json:"cost,omitempty"`
}

// DestroyedStatus says when a conversation was last cleared, and why.
type DestroyedStatus struct {
	// Time at which it was cleared.
	Time metav1.Time `json:"time"`
	// Reason is explicit (a caller asked for it) or expired.
	Reason string `json:"reason"`
}

// Thread is one durable conversation of an agent.
// +kubebuilder:validation:XValidation:rule="!has(self.spec.forkFrom) || self.spec.forkFrom.threadRef.name != self.metadata.name",message="a thread cannot be forked from itself: name another Thread in spec.forkFrom.threadRef"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=thr,categories=skein
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.agent`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Last run",type=string,JSONPath=`.status.lastRun.outcome`
// +kubebuilder:printcolumn:name="Messages",type=integer,JSONPath=`.status.messages`
// +kubebuilder:printcolumn:name="Children",type=integer,JSONPath=`.status.childCount`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Thread struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ThreadSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ThreadStatus `json:"status,omitempty"`
}

// ThreadID is the id, a UUID, under which the data of this Thread is stored: spec.threadID where the Thread
// adopts retained data, else the object's own UID.
func (t *Thread) ThreadID() string {
	if t.Spec.ThreadID != "" {
		return t.Spec.ThreadID
	}
	return string(t.UID)
}

// ThreadList is a list of Threads.
// +kubebuilder:object:root=true
type ThreadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Thread `json:"items"`
}
