package family

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// Rerun answers POST runs/{id}/rerun: it takes a run up again from one of its steps, in a fork (RUN-12). When it fails
// after it has created the fork, a repeat under the same key goes on from there.
func (h *Forks) Rerun(c *call.Call) error {
	var n runtimev1.NewRerun
	if err := c.Decode(&n, false); err != nil {
		return err
	}
	fork := runtimev1.NewFork{Name: n.Name, Title: n.Title, AgentID: n.AgentID, IdempotencyKey: n.IdempotencyKey}
	if err := checkFork(c, &fork); err != nil {
		return err
	}
	switch {
	case n.Step < 1:
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "step", "set it to the step to take up again: 1 is the first one")
	case n.Input != nil && len(*n.Input) > runtimev1.MaxContentBytes:
		return status.Invalid(c.Name, metav1.CauseTypeTooLong, "input", fmt.Sprintf("it has %d bytes, more than %d: shorten it", len(*n.Input), runtimev1.MaxContentBytes))
	}
	if err := h.checkAllowed(c, n.Name); err != nil {
		return err
	}
	step, err := h.Threads.RunStep(c.Context(), c.Row.ID, c.Path[0], n.Step)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no run %q: GET runs lists them", c.Name, c.Path[0])
	}
	if err != nil {
		return err
	}
	if n.Input != nil && step.Input == "" {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "input", "the run began with no message, so there is no input to replace: leave it out")
	}
	if fork.AgentID == "" {
		fork.AgentID = step.Run.Agent
	}
	body := n
	body.IdempotencyKey = ""
	if err := claim(c, "rerun", n.IdempotencyKey, body); err != nil {
		return err
	}
	st, row, err := h.make(c, fork, step.Last)
	if err != nil {
		return err
	}
	// When the caller leaves, the fork gets its run all the same.
	ctx, cancel := h.Find.DetachedContext(c.Context())
	defer cancel()
	if err := st.Rerun(ctx, step, n.Input); err != nil {
		return err
	}
	return h.write(c, row)
}
