package quota

import (
	"context"
	"errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/store"
)

// Admit lets the holder of a thread's lease begin or resume a run, if the quotas of the namespace have room (K8S-11).
// Otherwise it records what the thread waits for, and returns a *WaitError.
func (q *Quotas) Admit(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, resumed bool) error {
	err := q.Begin(ctx, t.Namespace, fence, resumed)
	var full *store.NamespaceQuotaError
	if err != nil && !errors.As(err, &full) {
		return err
	}
	waits := ""
	if full != nil {
		waits = full.Error()
	} else {
		active.Namespace = t.Namespace
	}
	if t.Waits != waits {
		if err := q.Store.Apply(ctx, t.ID, fence, &store.AwaitQuota{Message: waits}); err != nil {
			return err
		}
	}
	if full != nil {
		return &WaitError{NamespaceQuotaError: full}
	}
	return nil
}

// Refuse returns a *failure.Error when the namespace has used up its tokens or its cost of the day, or nil. It is called
// before each model call: what the run has done stays, and the next message begins another run once there is room. A request for a
// summary that comes while no run is under way is refused.
func (q *Quotas) Refuse(ctx context.Context, namespace string) error {
	err := q.CheckSpent(ctx, namespace, toGoOn)
	var full *store.NamespaceQuotaError
	if errors.As(err, &full) {
		return failure.New(skeinv1.ReasonQuotaExceeded, "%v", full)
	}
	return err
}
