package effects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// canceledByHand is what the record of such a firing says.
const canceledByHand = "canceled by hand"

// CancelFiring answers POST firings/{name}/cancel: one firing ends, and its schedule goes on (EFF-08). The answer has nothing that code
// wrote, because the right to cancel does not include the one to read that.
func (h *Handler) CancelFiring(c *call.Call) error {
	var which runtimev1.CancelFiring
	if err := c.Decode(&which, false); err != nil {
		return err
	}
	if which.Due <= 0 {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "due", "set it to the due time of a firing, in microseconds since 1970")
	}
	id, err := h.Effects.ID(c.Context(), c.Namespace, c.Name)
	if err != nil {
		return err
	}
	key, err := h.keyOf(c, id, which)
	if err != nil {
		return err
	}
	f, canceled, err := h.cancelFiring(c.Context(), key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return noFiring(c.Name, which)
	case err != nil:
		return err
	case !canceled:
		return status.Conflict(c.Name, fmt.Sprintf("the firing %s has ended already: %s", f.Text(), f.Status))
	}
	answer := firingOf(f)
	answer.Log = ""
	return c.WriteJSON(http.StatusOK, answer)
}

// cancelFiring cancels a firing, and returns what became of it and whether this canceled it. The history may lose the firing as soon as it
// is canceled. So it is read before that, too.
func (h *Handler) cancelFiring(ctx context.Context, key store.FiringKey) (f *store.Firing, canceled bool, err error) {
	firings := h.Threads.Store()
	before, err := firings.Firing(ctx, key)
	if err != nil {
		return nil, false, err
	}
	n, err := firings.CancelFirings(ctx, canceledByHand, key)
	if err != nil {
		return nil, false, err
	}
	f, err = firings.Firing(ctx, key)
	if n > 0 && errors.Is(err, store.ErrNotFound) {
		before.Status, before.Error, before.Waiting, before.EndedAt = store.FiringCanceled, canceledByHand, "", ownclock.Now().UnixMicro()
		return before, true, nil
	}
	return f, n > 0, err
}

// keyOf finds the firing that a request names. A due time may have fired for many threads, and a request without a thread must not cancel
// any one of them.
func (h *Handler) keyOf(c *call.Call, effectID string, which runtimev1.CancelFiring) (key store.FiringKey, err error) {
	if which.ThreadID != "" {
		key = store.FiringKey{EffectID: effectID, Due: which.Due, ThreadID: which.ThreadID}
		if id, ok := thread.ParseID(which.ThreadID); ok {
			key.ThreadID = id
		}
		return key, nil
	}
	due, err := h.firingsAt(c.Context(), effectID, which.Due)
	switch {
	case err != nil:
		return key, err
	case len(due) == 0:
		return key, noFiring(c.Name, which)
	case len(due) > 1:
		return key, status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "threadId", "the due time fired for several threads: name the one whose firing is to be canceled")
	}
	return due[0].Key(), nil
}

// firingsAt returns the firings of a due time, two at most.
func (h *Handler) firingsAt(ctx context.Context, effectID string, due int64) (at []store.Firing, err error) {
	newest, err := h.Threads.Store().Firings(ctx, store.FiringQuery{EffectID: effectID, Before: due + 1, Limit: 2, Brief: true})
	for _, f := range newest {
		if f.Due == due {
			at = append(at, f)
		}
	}
	return at, err
}

// noFiring says that a due time has no firing: none is recorded before it is due, and the history may have lost it.
func noFiring(name string, which runtimev1.CancelFiring) error {
	at := time.UnixMicro(which.Due).UTC().Format(time.RFC3339Nano)
	if which.ThreadID != "" {
		return status.NotFound(name, "ScheduledEffect %q has no firing of %s for thread %q: GET firings/%s lists those that exist", name, at, which.ThreadID, name)
	}
	return status.NotFound(name, "ScheduledEffect %q has no firing of %s: GET firings/%s lists those that exist", name, at, name)
}
