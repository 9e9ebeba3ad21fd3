package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/store"
)

// timeLeft returns how long a firing of a template may still take, as the spec says it now. The timeout counts from the creation of the
// Thread. limited is false when there is none.
func (d *schedule) timeLeft(f *store.Firing) (left time.Duration, limited bool) {
	limit := d.object.Spec.Timeout
	if limit == nil || f.StartedAt == 0 {
		return 0, false
	}
	return time.UnixMicro(f.StartedAt).Add(limit.Duration).Sub(d.at), true
}

// awaitTimeout makes the object reconcile again when the time of a firing is over.
func (d *schedule) awaitTimeout(f *store.Firing) {
	if left, limited := d.timeLeft(f); limited {
		d.retry = shorter(d.retry, max(left, time.Nanosecond))
	}
}

// timeoutText is the error of a firing that did not end in time.
func (d *schedule) timeoutText() string {
	if limit := d.object.Spec.Timeout; limit != nil {
		return effects.Target{Timeout: limit.Duration}.TimeoutText()
	}
	return "it did not end within the time that spec.timeout allowed"
}

// endForTimeout ends a firing of a template that has taken too long, and terminates its Thread. The Thread is terminated first: after a crash
// in between, its reason tells the next reconcile why.
func (r *Reconciler) endForTimeout(ctx context.Context, d *schedule, f *store.Firing, t *skeinv1.Thread) error {
	end := store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Status: store.FiringFailed, Error: d.timeoutText(), Counts: true}
	err := r.Engine.Terminate(ctx, t.ThreadID(), skeinv1.ReasonFiringTimeout)
	if errors.Is(err, store.ErrNotFound) { // it was never stored, and would run as soon as it is
		if err := r.end(ctx, d, f, end); err != nil {
			return err
		}
		return client.IgnoreNotFound(r.Client.Delete(ctx, t, client.Preconditions{UID: &t.UID}))
	}
	if err != nil {
		return fmt.Errorf("terminate Thread %q, which has taken too long: %w", t.Name, err)
	}
	return r.end(ctx, d, f, end)
}

// terminatedForTimeout reports whether a Thread was terminated because its firing had taken too long.
func terminatedForTimeout(t *skeinv1.Thread) bool {
	c := meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionTerminated)
	return c != nil && c.Reason == skeinv1.ReasonFiringTimeout
}
