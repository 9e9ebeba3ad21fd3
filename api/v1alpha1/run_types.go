package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunPolicy says what happens to a user's message that arrives during a run.
// +kubebuilder:validation:Enum=enqueue;reject;interrupt;rollback
type RunPolicy string

// Enqueue: the run takes it before its next model call. Reject: it is refused with 409. Interrupt: the run ends, and
// the message starts another. Rollback: the same, and what the run has appended is removed.
const (
	RunPolicyEnqueue   RunPolicy = "enqueue"
	RunPolicyReject    RunPolicy = "reject"
	RunPolicyInterrupt RunPolicy = "interrupt"
	RunPolicyRollback  RunPolicy = "rollback"
)

// RunLimits bound each run. One that reaches a bound fails with a reason that says which.
type RunLimits struct {
	// MaxSteps is how many model calls a run may make; reason MaxStepsReached.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxSteps *int32 `json:"maxSteps,omitempty"`

	// MaxTokens, input and output together, that the model calls of a run may use; reason MaxTokensReached. No call
	// begins once they are used up.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxTokens *int64 `json:"maxTokens,omitempty"`

	// MaxCost of a run in US dollars, for example "0.50"; reason MaxCostReached. Models without pricing cost nothing.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="give an amount above 0 such as \"0.50\", or leave it out for no bound"
	// +optional
	MaxCost *resource.Quantity `json:"maxCost,omitempty"`

	// MaxDuration that a run may work, without the time during which it is parked; reason MaxDurationReached. A call
	// that is under way at that moment is ended.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('87600h')",message="give a duration from 1s to 87600h such as 10m, or leave it out for no bound"
	// +optional
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
}
