package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SubagentSpec declares a child of a thread.
// +kubebuilder:validation:XValidation:rule="has(self.agentRef) || has(self.threadRef)",message="give agentRef, the Agent of a new child, or threadRef, an existing Thread that becomes the child"
// +kubebuilder:validation:XValidation:rule="!has(self.threadRef) || !(has(self.title) || has(self.message) || has(self.arguments) || has(self.attachments))",message="a Thread that is adopted keeps its own conversation: leave out title, message, arguments and attachments, and send it a message instead"
// +kubebuilder:validation:XValidation:rule="!has(self.threadRef) || self.threadRef.name != self.parentRef.name",message="a thread cannot be its own child: name another Thread in threadRef"
// +kubebuilder:validation:XValidation:rule="has(self.taskRef) == has(self.taskDigest)",message="taskRef and taskDigest are set by Skein, and belong together: write message and arguments instead"
// +kubebuilder:validation:XValidation:rule="!has(self.taskRef) || !(has(self.message) || has(self.arguments) || has(self.attachments) || has(self.threadRef))",message="Skein keeps the task that taskRef names: leave out taskRef, and write message, arguments and attachments yourself"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Subagent cannot be changed after it was made: delete it and let the parent make another, or message the child thread"
type SubagentSpec struct {
	// ParentRef names the parent Thread, which also owns this object.
	ParentRef LocalRef `json:"parentRef"`

	// AgentRef names the Agent that the child runs. It is needed unless threadRef is given.
	// +optional
	AgentRef LocalRef `json:"agentRef,omitzero"`

	// ThreadRef names an existing Thread that becomes the child. It must have no parent, and neither the parent nor one of
	// the parent's own parents may be below it. Deleting this Subagent deletes the Thread too.
	// +optional
	ThreadRef *LocalRef `json:"threadRef,omitempty"`

	// Name of the kind of child, as the parent's agent lists it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`

	// Title for people.
	// +kubebuilder:validation:MaxLength=500
	// +optional
	Title string `json:"title,omitempty"`

	// Description of the child's task.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// Message that the child starts with.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Message string `json:"message,omitempty"`

	// Attachments are paths of the parent's files that are copied to the child.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Attachments []string `json:"attachments,omitempty"`

	// Arguments of the child thread.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`

	// TaskRef names the message, arguments and attachments that a model or code gave, which Skein keeps outside of this
	// object. Skein sets it; set message, arguments and attachments in what you declare yourself.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TaskRef string `json:"taskRef,omitempty"`

	// TaskDigest identifies the content that taskRef names. It is made with a key, so it cannot be used to check a guess.
	// +kubebuilder:validation:MaxLength=100
	// +optional
	TaskDigest string `json:"taskDigest,omitempty"`

	// Blocking: the parent's tool call waits for the child's result.
	// +optional
	Blocking bool `json:"blocking,omitempty"`

	// Resumable: the child lives on after its result.
	// +optional
	Resumable bool `json:"resumable,omitempty"`

	// ParentCommunication of the child.
	// +kubebuilder:default=implicit
	// +optional
	ParentCommunication ParentCommunication `json:"parentCommunication,omitempty"`

	// SpawnGroupID is the id of the run of the parent that made the child.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SpawnGroupID string `json:"spawnGroupId,omitempty"`

	// ToolCallID of the call that made it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ToolCallID string `json:"toolCallID,omitempty"`

	// TTLAfterFinished is how long after the child's final end this Subagent and its Thread are removed; never when
	// absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('87600h')",message="give a duration from 0s to 87600h such as 24h, or leave it out to keep the child as long as its parent"
	// +optional
	TTLAfterFinished *metav1.Duration `json:"ttlAfterFinished,omitempty"`

	// Retain says what happens to the conversation when ttlAfterFinished is over: Purge, the default, or Keep.
	// +optional
	Retain ChildRetention `json:"retain,omitempty"`
}

// SubagentStatus is the registry entry and the conditions.
type SubagentStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Entry is the registry entry, which the parent's status mirrors.
	// +optional
	Entry *ChildStatus `json:"entry,omitempty"`

	// Steps that the child's newest run has made.
	// +optional
	Steps int32 `json:"steps,omitempty"`

	// LastActivityTime of the child's conversation.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`

	// Conditions: Ready, Terminated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subagent is a child of a thread: owned by the parent Thread, owner of the child Thread.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sub,categories=skein
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parentRef.name`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agentRef.name`
// +kubebuilder:printcolumn:name="Thread",type=string,JSONPath=`.status.entry.threadName`,priority=1
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.entry.status`
// +kubebuilder:printcolumn:name="Step",type=integer,JSONPath=`.status.steps`
// +kubebuilder:printcolumn:name="Last activity",type=date,JSONPath=`.status.lastActivityTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Subagent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec SubagentSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status SubagentStatus `json:"status,omitempty"`
}

// SubagentList is a list of Subagents.
// +kubebuilder:object:root=true
type SubagentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subagent `json:"items"`
}
