package engine

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/held"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/store"
)

// admitRun lets the holder of a thread's lease begin or resume a run, if the quotas of the namespace have room (K8S-11).
// Otherwise it records what the thread waits for, and returns a *quota.WaitError.
func (e *Engine) admitRun(ctx context.Context, t *store.Thread, fence *store.Fence, active *held.Active, resumed bool) error {
	err := e.quotas.Begin(ctx, t.Namespace, fence, resumed)
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
		if err := e.store.Apply(ctx, t.ID, fence, &store.AwaitQuota{Message: waits}); err != nil {
			return err
		}
	}
	if full != nil {
		return &quota.WaitError{NamespaceQuotaError: full}
	}
	return nil
}

// overQuota returns a *failure.Error when the namespace has used up its tokens or its cost of the day, or nil. It is called
// before each model call: what the run has done stays, and the next message begins another run once there is room.
func (r *run) overQuota(ctx context.Context) error {
	err := r.engine.quotas.Spent(ctx, r.thread.Namespace)
	var full *store.NamespaceQuotaError
	if errors.As(err, &full) {
		return failure.New(failure.ReasonQuotaExceeded, "%v", full)
	}
	return err
}
