package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EffectSpec is an operation that runs at a certain time, outside of the conversation.
type EffectSpec struct {
	// Description for people, and for models that may schedule it.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// Parameters is the JSON Schema of the arguments.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Code whose default export is the effect: defineEffect({ description, args, handler(state, args) }).
	Code CodeSource `json:"code"`

	// Timeout of one firing.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="give a duration from 1ms to 24h such as 60s"
	// +kubebuilder:default="60s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Effect is a definition: code that a ScheduledEffect fires. Code names it by the object's name, with
// "-" and "_" taken as the same and the package of "package/effect" written before a ".".
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ef,categories=skein
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Effect struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec EffectSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DefinitionStatus `json:"status,omitempty"`
}

// EffectList is a list of Effects.
// +kubebuilder:object:root=true
type EffectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Effect `json:"items"`
}
