package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ThreadQuotaSpec limits what a namespace may use.
type ThreadQuotaSpec struct {
	// Hard are the bounds. When a namespace has several ThreadQuotas, the lowest of each bound holds. What is absent
	// here and in the other ThreadQuotas is as the manager's flag --namespace-quota says.
	Hard QuotaAmounts `json:"hard"`
}

// QuotaAmounts are amounts of what a namespace may use.
// +kubebuilder:validation:MinProperties=1
type QuotaAmounts struct {
	// Threads that are stored, including retained ones without an object. A Thread beyond it does not begin until
	// there is room.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Threads *int64 `json:"threads,omitempty"`

	// RunningThreads are threads that are worked on at once, by all replicas together. A thread beyond it waits.
	// +kubebuilder:validation:Minimum=0
	// +optional
	RunningThreads *int64 `json:"runningThreads,omitempty"`

	// Bytes of the files of all threads, such as 10Gi. A file beyond it is refused.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isInteger() && !quantity(string(self)).isLessThan(quantity('0'))",message="give a whole number of bytes such as 10Gi"
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`

	// MessageBytes are the bytes of the messages of all threads, such as 5Gi. Messages that a fork shares with its origin count
	// once. Beyond it messages of clients and code are refused, and no run begins. Runs under way continue to their end.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isInteger() && !quantity(string(self)).isLessThan(quantity('0'))",message="give a whole number of bytes such as 10Gi"
	// +optional
	MessageBytes *resource.Quantity `json:"messageBytes,omitempty"`

	// TokensPerDay are tokens that runs read and write from midnight to midnight in UTC. Beyond it no run begins, and
	// those under way end before their next model call.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TokensPerDay *int64 `json:"tokensPerDay,omitempty"`

	// CostPerDay is what runs cost from midnight to midnight in UTC, in US dollars, such as "25". Only Models with
	// spec.pricing cost anything. Beyond it no run begins, and those under way end before their next model call.
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1000000000'))",message="give an amount of US dollars from 0 to 1000000000 such as \"25\" or \"0.50\""
	// +optional
	CostPerDay *resource.Quantity `json:"costPerDay,omitempty"`

	// PendingEffects are ScheduledEffects that have not ended. Code, models and the runtime API can schedule no more
	// beyond it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PendingEffects *int64 `json:"pendingEffects,omitempty"`
}

// ThreadQuotaStatus says what the namespace uses.
type ThreadQuotaStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Hard are the bounds that hold.
	// +optional
	Hard *QuotaAmounts `json:"hard,omitempty"`

	// Used is what the namespace uses of what the spec bounds.
	// +optional
	Used *QuotaAmounts `json:"used,omitempty"`

	// Summary shows both in one line.
	// +optional
	Summary string `json:"summary,omitempty"`

	// Conditions are Ready and Full. Full is True while one of the bounds is reached.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ThreadQuota bounds what the threads of its namespace may use together. Only the role skein-quota-editor may write it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tq,categories=skein
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.summary`
// +kubebuilder:printcolumn:name="Full",type=string,JSONPath=`.status.conditions[?(@.type=="Full")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ThreadQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ThreadQuotaSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until a controller has seen the object.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ThreadQuotaStatus `json:"status,omitempty"`
}

// ThreadQuotaList is a list of ThreadQuotas.
// +kubebuilder:object:root=true
type ThreadQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ThreadQuota `json:"items"`
}
