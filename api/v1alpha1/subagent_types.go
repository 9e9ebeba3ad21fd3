package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SubagentSpec declares a child of a thread.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Subagent cannot be changed after it was made: delete it and let the parent make another, or message the child thread"
type SubagentSpec struct {
	// ParentRef names the parent Thread, which also owns this object.
	ParentRef LocalRef `json:"parentRef"`

	// AgentRef names the Agent that the child runs.
	AgentRef LocalRef `json:"agentRef"`

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

	// SpawnGroupID is shared by children that one step made.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	SpawnGroupID string `json:"spawnGroupId,omitempty"`

	// ToolCallID of the call that made it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ToolCallID string `json:"toolCallID,omitempty"`
}

// SubagentStatus is the registry entry and the conditions.
type SubagentStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Entry is the registry entry, which the parent's status mirrors.
	// +optional
	Entry *ChildStatus `json:"entry,omitempty"`

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
// +kubebuilder:printcolumn:name="Thread",type=string,JSONPath=`.status.entry.threadName`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.entry.status`
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
