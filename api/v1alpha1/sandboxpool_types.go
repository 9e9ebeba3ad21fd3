package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SandboxPoolSpec says what sandboxes look like and how many stay warm.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.warm <= self.max",message="warm must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.maxWarm) || self.warm <= self.maxWarm",message="warm must not be above maxWarm"
// +kubebuilder:validation:XValidation:rule="!has(self.maxWarm) || !has(self.max) || self.maxWarm <= self.max",message="maxWarm must not be above max"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || !string(self.resources.limits['memory']).matches('^[+]?[0-9.]{1,30}([a-zA-Z]i?|[eE][0-9+-]{1,3})?$') || !isQuantity(string(self.resources.limits['memory'])) || quantity(string(self.resources.limits['memory'])).compareTo(quantity('32Mi')) >= 0",message="give resources.limits.memory of 32Mi or more, such as 512Mi; a number without a unit counts bytes"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(self.resources.limits) || !('cpu' in self.resources.limits) || !string(self.resources.limits['cpu']).matches('^[+]?[0-9.]{1,30}([a-zA-Z]i?|[eE][0-9+-]{1,3})?$') || !isQuantity(string(self.resources.limits['cpu'])) || quantity(string(self.resources.limits['cpu'])).isGreaterThan(quantity('0'))",message="give resources.limits.cpu above 0 such as 500m, or leave it out for 1"
type SandboxPoolSpec struct {
	// Warm is the smallest number of sandboxes that wait unclaimed. With 0, each first use waits for a new pod.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	// +optional
	Warm int32 `json:"warm"` // written even when 0, which is not the default

	// MaxWarm is the largest number of sandboxes that wait unclaimed; the same as warm when absent. Between the two,
	// as many wait as were claimed within half a minute at the busiest time of the last five minutes.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxWarm *int32 `json:"maxWarm,omitempty"`

	// Max sandboxes of this pool in all, warm and claimed.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=100
	// +optional
	Max int32 `json:"max,omitempty"`

	// Engine that runs the code. quickjs starts fast and keeps its limits exactly. v8 compiles to machine code, for
	// code that computes for long, and takes more memory. A change replaces the sandboxes that wait.
	// +kubebuilder:validation:Enum=quickjs;v8
	// +kubebuilder:default=quickjs
	// +optional
	Engine SandboxEngine `json:"engine,omitempty"`

	// Image of the sandbox; the manager's own setting for the engine when absent.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`

	// ImagePullPolicy of the image.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Resources of a sandbox. Limits for cpu and memory are always set: 1 CPU and 512Mi when absent, 1Gi with the
	// v8 engine.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// RuntimeClassName, for example of gVisor or Kata.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// HostUsers false gives each pod a user namespace of its own. Code that escapes from a pod then has no privileges on the node.
	// Nodes need Linux 6.3, containerd 2.0 and runc 1.2 or later; on another node such a pod does not start. When absent the pods
	// use the users of their node, as those of a cluster do by default.
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`

	// NodeSelector of the pods.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods.
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Affinity of the pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// TopologySpreadConstraints of the pods. One without a labelSelector counts the pods of this pool.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// ImagePullSecrets name Secrets of this namespace with which nodes pull the image.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// PodMetadata is put on the pods beside what Skein puts there.
	// +optional
	PodMetadata *SandboxPodMetadata `json:"podMetadata,omitempty"`

	// RuntimeContext is the value of state._notPackableRuntimeContext in code. It holds facts about the platform, such
	// as addresses and names, under keys of your choice. Do not put secrets there: those belong in env. A change
	// replaces no pods.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	RuntimeContext *runtime.RawExtension `json:"runtimeContext,omitempty"`

	// IdleTimeout after which a claimed sandbox that runs nothing is deleted.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="give a duration from 1s to 87600h such as 5m"
	// +kubebuilder:default="5m"
	// +optional
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// MaxWallTime of one execution.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="give a duration from 100ms to 24h such as 60s"
	// +kubebuilder:default="60s"
	// +optional
	MaxWallTime *metav1.Duration `json:"maxWallTime,omitempty"`

	// MaxMemory of one execution's engine.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isInteger() && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('1Ti')) <= 0",message="give a number of bytes from 1Mi to 1Ti such as 64Mi; a number without a unit counts bytes"
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

// SandboxEngine is a JavaScript engine.
type SandboxEngine string

// The engines.
const (
	SandboxEngineQuickJS SandboxEngine = "quickjs"
	SandboxEngineV8      SandboxEngine = "v8"
)

// SandboxPodMetadata is metadata that you choose for sandbox pods, for example for cost reports or for controllers
// that change pods.
type SandboxPodMetadata struct {
	// Labels of the pods. Labels that Skein itself uses cannot be set.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('skein.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels of skein.dev/ and app.kubernetes.io/ are Skein's own: use another prefix"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pods.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('skein.dev/'))",message="annotations of skein.dev/ are Skein's own: use another prefix"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SandboxPoolStatus counts the pods.
type SandboxPoolStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Engine of the sandboxes that are up to date.
	// +optional
	Engine SandboxEngine `json:"engine,omitempty"`
	// DesiredWarm is how many sandboxes are to wait unclaimed at present, between spec.warm and spec.maxWarm.
	// +kubebuilder:default=0
	// +optional
	DesiredWarm int32 `json:"desiredWarm"`
	// Warm sandboxes that are ready and unclaimed, those of an old template included while they are replaced.
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
	// Failing sandboxes: those that have ended by themselves, and those that do not come up.
	// +kubebuilder:default=0
	// +optional
	Failing int32 `json:"failing"`
	// Outdated sandboxes: unclaimed ones of an old template, which are being replaced.
	// +kubebuilder:default=0
	// +optional
	Outdated int32 `json:"outdated"`
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
// +kubebuilder:printcolumn:name="Want",type=integer,JSONPath=`.status.desiredWarm`
// +kubebuilder:printcolumn:name="Warm",type=integer,JSONPath=`.status.warm`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimed`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.starting`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.failing`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SandboxPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec SandboxPoolSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status SandboxPoolStatus `json:"status,omitempty"`
}

// SandboxPoolList is a list of SandboxPools.
// +kubebuilder:object:root=true
type SandboxPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxPool `json:"items"`
}
