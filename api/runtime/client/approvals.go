package client

import (
	"context"
	"encoding/json"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Approvals returns a page of the tool calls that wait for approval, in the order in which they were requested
// (RUN-11).
func (t *Thread) Approvals(ctx context.Context, p Page) (*runtimev1.ApprovalList, error) {
	return readAs[runtimev1.ApprovalList](ctx, t, p.params(), runtimev1.SubresourceApprovals)
}

// Approve approves a waiting tool call. When arguments, a JSON object, are not nil, the call is made with them
// instead of the model's. Repeating the same decision is no error. The error is one that IsConflict when another
// decision was made before, and one that IsNotFound when no such call waits.
func (t *Thread) Approve(ctx context.Context, callID, reason string, arguments json.RawMessage) (*runtimev1.Approval, error) {
	return t.decide(ctx, callID, runtimev1.NewDecision{Decision: runtimev1.DecisionApprove, Reason: reason, Arguments: arguments})
}

// Refuse refuses a waiting tool call: the model gets an error with the reason instead of the call's result. Errors
// are those of Approve.
func (t *Thread) Refuse(ctx context.Context, callID, reason string) (*runtimev1.Approval, error) {
	return t.decide(ctx, callID, runtimev1.NewDecision{Decision: runtimev1.DecisionRefuse, Reason: reason})
}

func (t *Thread) decide(ctx context.Context, callID string, d runtimev1.NewDecision) (*runtimev1.Approval, error) {
	return sendAs[runtimev1.Approval](ctx, t, http.MethodPost, d, runtimev1.SubresourceApprovals, callID)
}
