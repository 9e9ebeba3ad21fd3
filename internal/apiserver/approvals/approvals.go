// Package approvals serves the tool calls that wait for a person.
package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/events"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// Engine is the part of the engine that handles tool calls that wait for a person (RUN-11).
type Engine interface {
	Approvals(ctx context.Context, threadID string, p approval.Page) (calls []approval.Call, more bool, err error)
	Decide(ctx context.Context, threadID, callID string, d store.Approval) (*approval.Call, error)
}

// maxPageBytes bounds a page: a call may have arguments of a mebibyte, and so may the decision on it.
const maxPageBytes = 8 << 20

// Handler serves the tool calls of a thread that wait for a person.
type Handler struct {
	Engine   Engine
	Recorder events.EventRecorder // may be nil
}

// List answers GET approvals: the tool calls that wait for a person (RUN-11).
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := h.Engine.Approvals(c.Context(), c.Row.ID, approval.Page{Limit: limit, Offset: offset, MaxBytes: maxPageBytes})
	if err != nil {
		return err
	}
	var size int64
	for i := range page {
		size += page[i].Bytes()
	}
	adjust(size)
	list := runtimev1.ApprovalList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindApprovalList), Approvals: make([]runtimev1.Approval, len(page)), HasMore: more}
	for i := range page {
		list.Approvals[i] = approvalOf(&page[i])
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Decide answers POST approvals/{call}. The user whom the API server has authenticated is recorded as the one
// who decided. The request cannot name another.
func (h *Handler) Decide(c *call.Call) error {
	if len(c.Path) != 1 {
		return status.NoSuchPath(c.Request)
	}
	var in runtimev1.NewDecision
	if err := c.Decode(&in, false); err != nil {
		return err
	}
	d, err := decisionOf(c.Name, in)
	if err != nil {
		return err
	}
	user, ok := apirequest.UserFrom(c.Context())
	if !ok {
		return errors.New("the request has no user")
	}
	d.By = user.GetName()
	a, err := h.Engine.Decide(c.Context(), c.Row.ID, c.Path[0], d)
	var decided *approval.DecidedError
	if errors.As(err, &decided) {
		return status.Conflict(c.Name, fmt.Sprintf("%s; a decision cannot be taken back: stop the run, or send a message", decided.Error()))
	}
	if err != nil {
		return err
	}
	h.recordDecision(c.Row, a)
	out := approvalOf(a)
	out.TypeMeta = runtimev1.TypeMetaOf(runtimev1.KindApproval)
	return c.WriteJSON(http.StatusOK, out)
}

// recordDecision records an Event on the Thread that says who decided what, for people who watch the cluster rather
// than the conversation. The log of the thread keeps the decision for good, with its reason. The content of the call
// stays in the log.
func (h *Handler) recordDecision(t *store.Thread, a *approval.Call) {
	if h.Recorder == nil || a.Decision == nil || a.RunID == "" { // a RunID of "" means that it was decided before
		return
	}
	said, reason, action := "refused", skeinv1.ReasonCallRefused, "Refuse"
	if a.Decision.Approved {
		said, reason, action = "approved", skeinv1.ReasonCallApproved, "Approve"
	}
	if a.Decision.Arguments != nil {
		said += ", with arguments of their own,"
	}
	// The field path keeps Events of different calls of one thread from being counted as one.
	about := &corev1.ObjectReference{
		APIVersion: skeinv1.GroupVersion.String(), Kind: "Thread", Namespace: t.Namespace, Name: t.Name, UID: types.UID(t.OwnerUID()),
		FieldPath: "approvals{" + a.ToolCallID + "}",
	}
	h.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, action, "%s %s the call %s of the tool %s", a.Decision.By, said, a.ToolCallID, a.Name)
}

func decisionOf(name string, in runtimev1.NewDecision) (store.Approval, error) {
	d := store.Approval{Reason: in.Reason}
	if len(in.Reason) > runtimev1.MaxReasonBytes {
		return d, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, "reason", fmt.Sprintf("it must have at most %d bytes", runtimev1.MaxReasonBytes))
	}
	switch in.Decision {
	case runtimev1.DecisionApprove:
		d.Approved = true
		if len(in.Arguments) > 0 {
			args, err := call.Object(name, "arguments", in.Arguments)
			if err != nil {
				return d, err
			}
			d.Arguments = args
		}
	case runtimev1.DecisionRefuse:
		if len(in.Arguments) > 0 {
			return d, status.Invalid(name, metav1.CauseTypeFieldValueInvalid, "arguments", "a refused call takes no arguments: leave them out, or approve the call with them")
		}
	default:
		return d, status.Invalid(name, metav1.CauseTypeFieldValueNotSupported, "decision", "it must be approve or refuse")
	}
	return d, nil
}

func approvalOf(a *approval.Call) runtimev1.Approval {
	out := runtimev1.Approval{
		ToolCallID: a.ToolCallID, RunID: a.RunID, Name: a.Name, Arguments: a.Arguments, RequestedAt: a.RequestedAt, ExpiresAt: a.ExpiresAt,
	}
	if d := a.Decision; d != nil {
		out.Decision = &runtimev1.Decision{Approved: d.Approved, By: d.By, At: d.At, Reason: d.Reason, Arguments: json.RawMessage(d.Arguments), Expired: d.Expired}
	}
	return out
}
