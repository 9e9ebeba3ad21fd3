package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decisions on a tool call that has to be approved.
const (
	// DecisionApprove has the call made.
	DecisionApprove = "approve"
	// DecisionRefuse gives the model an error in the place of the call's result.
	DecisionRefuse = "refuse"
)

// MaxReasonBytes bounds why somebody decided as they did.
const MaxReasonBytes = 4 << 10

// NewDecision is the body of POST approvals/{call}.
type NewDecision struct {
	// Decision: approve or refuse.
	Decision string `json:"decision"`
	// Reason for it, for people; the model reads why a call was refused. At most 4 KiB.
	Reason string `json:"reason,omitempty"`
	// Arguments, an object, that an approved call is made with instead of the model's.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Approval is a tool call that waits for approval, or was decided on and is about to be made.
type Approval struct {
	metav1.TypeMeta `json:",inline"`
	// ToolCallID of the call.
	ToolCallID string `json:"toolCallId"`
	// RunID of the run that waits; empty when it has gone on.
	RunID string `json:"runId,omitempty"`
	// Name of the tool.
	Name string `json:"name"`
	// Arguments as the model wrote them: JSON text.
	Arguments string `json:"arguments,omitempty"`
	// RequestedAt in microseconds.
	RequestedAt int64 `json:"requestedAt,omitempty"`
	// ExpiresAt, in microseconds, is when the call is refused if nobody decides; 0 for never.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
	// Decision once there is one.
	Decision *Decision `json:"decision,omitempty"`
}

// Decision on a call: what, who, when and why. It is also in metadata.approval of the call's result, as data of
// approval.decided in the log.
type Decision struct {
	// Approved tells whether the call is made.
	Approved bool `json:"approved"`
	// By is the name of the user who decided; empty when nobody did in time.
	By string `json:"by,omitempty"`
	// At in microseconds.
	At int64 `json:"at"`
	// Reason that was given.
	Reason string `json:"reason,omitempty"`
	// Arguments that the call is made with instead of the model's.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Expired tells that nobody decided in time.
	Expired bool `json:"expired,omitempty"`
}

// ApprovalList is a page of calls that wait for approval, in the order in which they were asked for.
type ApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	// Approvals of the page.
	Approvals []Approval `json:"approvals"`
	// HasMore tells that there are more.
	HasMore bool `json:"hasMore"`
}

// Kinds of the answers about approvals.
const (
	KindApproval     = "Approval"
	KindApprovalList = "ApprovalList"
)
