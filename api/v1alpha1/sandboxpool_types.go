package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SandboxPoolSpec says what sandboxes look like and how many stay warm (SPEC COD-09).
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.warm <= self.max",message="warm must not be above max"
type SandboxPoolSpec struct {
	// Warm sandboxes that wait unclaimed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	// +optional
	Warm int32 `json:"warm,omitempty"`

	// Max sandboxes of this pool in all, warm and claimed.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=100
	// +optional
	Max int32 `json:"max,omitempty"`

	// Image of the sandbox; the manager's own setting when absent.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`

	// ImagePullPolicy of the image.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Resources of a sandbox. Limits for cpu and memory are always set: 1 CPU and 512Mi when absent.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// RuntimeClassName, for example of gVisor or Kata.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// NodeSelector of the pods.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods.
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// IdleTimeout after which a claimed sandbox that runs nothing is deleted.
	// +kubebuilder:default="5m"
	// +optional
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// MaxWallTime of one execution (SPEC COD-06).
	// +kubebuilder:default="60s"
	// +optional
	MaxWallTime *metav1.Duration `json:"maxWallTime,omitempty"`

	// MaxMemory of one execution's engine.
	// +kubebuilder:default="64Mi"
	// +optional
	MaxMemory *resource.Quantity `json:"maxMemory,omitempty"`

	// MaxConcurrency of executions in one sandbox.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=4
	// +optional
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`
}

// SandboxPoolStatus counts the pods.
type SandboxPoolStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Warm sandboxes that are ready and unclaimed.
	// +kubebuilder:default=0
	// +optional
	Warm int32 `json:"warm"`
	// Claimed sandboxes.
	// +kubebuilder:default=0
	// +optional
	Claimed int32 `json:"claimed"`
	// Starting sandboxes.
	// +kubebuilder:default=0
	// +optional
	Starting int32 `json:"starting"`
	// Failing sandboxes.
	// +kubebuilder:default=0
	// +optional
	Failing int32 `json:"failing"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SandboxPool keeps sandboxes warm.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sbp,categories=skein
// +kubebuilder:printcolumn:name="Want",type=integer,JSONPath=`.spec.warm`
// +kubebuilder:printcolumn:name="Warm",type=integer,JSONPath=`.status.warm`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimed`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.starting`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.failing`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SandboxPoolSpec   `json:"spec"`
	Status SandboxPoolStatus `json:"status,omitempty"`
}

// SandboxPoolList is a list of SandboxPools.
// +kubebuilder:object:root=true
type SandboxPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxPool `json:"items"`
}
