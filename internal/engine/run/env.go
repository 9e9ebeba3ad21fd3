package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/store"
)

// awaitEnv resolves the thread's variables before any of its code runs, so that its secrets are redacted from everything
// that is written (ENV-03). If required variables are missing it parks the run until they are set, and returns waits as
// true (ENV-06).
func (r *run) awaitEnv(ctx context.Context, items []store.InboxItem) (waits bool, err error) {
	missing, err := r.code.LoadEnv(ctx)
	if err != nil || len(missing) == 0 {
		return false, err
	}
	if r.resumed && len(items) > 0 {
		// Take in the items that woke the run anyway: left in the inbox they would keep waking it.
		now, err := r.admit(ctx, r.hooks.TakeDue(items), true)
		if err != nil {
			return false, err
		}
		if len(now) > 0 || !r.withholds {
			if err := r.takeIn(ctx, now); err != nil {
				return false, err
			}
		}
	}
	r.code.SnapshotContext(ctx)
	r.record.Status, r.record.Reason = store.RunWaiting, skeinv1.ReasonEnvMissing
	r.record.Message = fmt.Sprintf("the agent %s needs values for %s: set them with kubectl skein env set, with setEnv, or in a Secret of the user or the instance",
		r.Agent.Name, strings.Join(missing, ", "))
	r.record.State, r.record.WakeAt = r.State.Encode(), 0
	if err := r.newTransaction("park").save(ctx); err != nil {
		return false, err
	}
	// A variable that was set after the first look and before the run was parked woke no run. So look again.
	if missing, err = r.code.LoadEnv(ctx); err == nil && len(missing) > 0 {
		return true, nil
	}
	// Resume the run, also if the second look failed: nothing else would wake it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelcause.ReleaseTimeout)
	defer cancel()
	return true, errors.Join(err, r.service.opts.Store.Apply(ctx, r.Thread.ID, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true}))
}
