package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ScheduledEffectSpec says which effect fires when, for which thread.
// +kubebuilder:validation:XValidation:rule="has(self.at) != has(self.after)",message="set exactly one of at (a time such as 2027-01-31T09:00:00Z) and after (a delay from the object's creation, such as 10m)"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a ScheduledEffect cannot be changed after it was made: delete it and create another"
type ScheduledEffectSpec struct {
	// ThreadRef names the Thread for which it fires.
	ThreadRef LocalRef `json:"threadRef"`

	// Effect to fire: the name of an Effect, or package/effect.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)?$')`,message="write the name of an Effect, such as remind, or package/effect: letters, digits, _, . and -"
	// +kubebuilder:validation:MaxLength=253
	Effect string `json:"effect"`

	// Args for the handler, an object.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Args *runtime.RawExtension `json:"args,omitempty"`

	// At is the due time, in RFC 3339, such as 2027-01-31T09:00:00Z. A fraction of a second may follow the seconds.
	// +optional
	At *Timestamp `json:"at,omitempty"`

	// After is the delay from the object's creation; "0s" fires at once.
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// HookDepth is how many hooks, one caused by the other, led to this effect. Skein sets it on what code schedules, so
	// that hooks and effects cannot keep causing each other; leave it out of what you declare yourself.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	HookDepth int32 `json:"hookDepth,omitempty"`

	// TTLSecondsAfterFinished: the object is deleted so long after its handler ended.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=300
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ScheduledEffectStatus says where it stands.
type ScheduledEffectStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase in one word: Pending, Fired, Succeeded, Failed, Canceled.
	// +optional
	Phase string `json:"phase,omitempty"`

	// ScheduledAt is the due time in microseconds since 1970.
	// +optional
	ScheduledAt int64 `json:"scheduledAt,omitempty"`

	// FiredAt is when the firing was recorded, in microseconds since 1970.
	// +optional
	FiredAt int64 `json:"firedAt,omitempty"`

	// CompletionTime of the handler.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Conditions: Ready, Fired, Complete.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ScheduledEffect is a pending effect. Its id is the object's UID.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sef,categories=skein
// +kubebuilder:printcolumn:name="Thread",type=string,JSONPath=`.spec.threadRef.name`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effect`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ScheduledEffect struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ScheduledEffectSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ScheduledEffectStatus `json:"status,omitempty"`
}

// ScheduledEffectList is a list of ScheduledEffects.
// +kubebuilder:object:root=true
type ScheduledEffectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScheduledEffect `json:"items"`
}
