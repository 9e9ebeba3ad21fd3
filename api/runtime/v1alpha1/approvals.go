package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decisions on a tool call that needs approval.
const (
	// DecisionApprove lets the call be made.
	DecisionApprove = "approve"
	// DecisionRefuse gives the model an error instead of the call's result.
	DecisionRefuse = "refuse"
)

// MaxReasonBytes is the maximum length of the reason for a decision.
const MaxReasonBytes = 4 << 10

// NewDecision is the body of POST approvals/{call}.
type NewDecision struct {
	// Decision is approve or refuse.
	Decision string `json:"decision"`
	// Reason is for people. The model reads why a call was refused. At most 4 KiB.
	Reason string `json:"reason,omitempty"`
	// Arguments is a JSON object that replaces the model's arguments in an approved call.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Approval is a tool call that waits for approval, or that was decided and is about to be made.
type Approval struct {
	metav1.TypeMeta `json:",inline"`
	// ToolCallID is the id of the call.
	ToolCallID string `json:"toolCallId"`
	// RunID is the run that waits. It is empty when the run has continued.
	RunID string `json:"runId,omitempty"`
	// Name is the name of the tool.
	Name string `json:"name"`
	// Arguments as the model wrote them: JSON text.
	Arguments string `json:"arguments,omitempty"`
	// RequestedAt is when approval was requested, in microseconds.
	RequestedAt int64 `json:"requestedAt,omitempty"`
	// ExpiresAt is when a call without a decision is refused, in microseconds. 0 means never.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
	// Decision is absent until there is one.
	Decision *Decision `json:"decision,omitempty"`
}

// Decision says what was decided about a call, by whom, when and why. It is also in metadata.approval of the call's
// result, and is the data of approval.decided in the log.
type Decision struct {
	// Approved is true when the call is made.
	Approved bool `json:"approved"`
	// By is the name of the user who decided. It is empty when no decision came in time.
	By string `json:"by,omitempty"`
	// At is when it was decided, in microseconds.
	At int64 `json:"at"`
	// Reason is the reason that was given.
	Reason string `json:"reason,omitempty"`
	// Arguments is the object that replaced the model's arguments.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Expired is true when no decision came in time.
	Expired bool `json:"expired,omitempty"`
}

// ApprovalList is a page of calls that wait for approval, in the order in which they were requested.
type ApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	// Approvals is the page.
	Approvals []Approval `json:"approvals"`
	// HasMore reports whether more follow.
	HasMore bool `json:"hasMore"`
}

// Kinds of the answers about approvals.
const (
	KindApproval     = "Approval"
	KindApprovalList = "ApprovalList"
)
