package client

import (
	"context"
	"encoding/json"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Approvals gives a page of the tool calls that wait for approval, in the order in which they were asked for
// (RUN-11).
func (t *Thread) Approvals(ctx context.Context, p Page) (*runtimev1.ApprovalList, error) {
	return one[runtimev1.ApprovalList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceApprovals) })
}

// Approve has a call made that waits for it, with the arguments given, an object, in the place of the model's when they
// are not nil. The same again is no error; an error that IsConflict when somebody decided otherwise, one that IsNotFound
// when no such call waits.
func (t *Thread) Approve(ctx context.Context, callID, reason string, arguments json.RawMessage) (*runtimev1.Approval, error) {
	return t.decide(ctx, callID, runtimev1.NewDecision{Decision: runtimev1.DecisionApprove, Reason: reason, Arguments: arguments})
}

// Refuse gives the model an error, with the reason, in the place of a call's result. Errors are those of Approve.
func (t *Thread) Refuse(ctx context.Context, callID, reason string) (*runtimev1.Approval, error) {
	return t.decide(ctx, callID, runtimev1.NewDecision{Decision: runtimev1.DecisionRefuse, Reason: reason})
}

func (t *Thread) decide(ctx context.Context, callID string, d runtimev1.NewDecision) (*runtimev1.Approval, error) {
	return one[runtimev1.Approval](func(out any) error {
		return t.send(ctx, http.MethodPost, d, out, runtimev1.SubresourceApprovals, callID)
	})
}
