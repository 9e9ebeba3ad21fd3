package scheduledeffect

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

const (
	// lookAtClock is how often the clock is compared with the time that has passed.
	lookAtClock = time.Second
	// tolerance is how far the clock may be ahead of that before due times are computed again.
	tolerance = 250 * time.Millisecond
)

// ClockSource returns a source that enqueues all effects that have not finished when the clock has been set forward, or the machine was
// suspended. The workqueue waits until a time has passed, which says nothing about the clock then. A clock that was set back
// needs nothing: an object that is reconciled too early waits again. The source also gives the reconciler the workqueue, so that an error puts
// off no due time.
func (r *Reconciler) ClockSource() source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.queue.use(q)
		go r.watchClock(ctx, q)
		return nil
	})
}

func (r *Reconciler) watchClock(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	ticker := time.NewTicker(lookAtClock)
	defer ticker.Stop()
	since := time.Now()
	w := clockWatch{from: r.Clock.Now().Round(0)} // without its monotonic reading
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !w.hasJumped(r.Clock.Now().Round(0), time.Since(since)) {
			continue
		}
		var list skeinv1.ScheduledEffectList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list ScheduledEffects after the clock was set forward: trying again")
			continue
		}
		ctrl.LoggerFrom(ctx).Info("the clock was set forward: all due times are computed again", "effects", len(list.Items))
		for i := range list.Items {
			if list.Items[i].Status.CompletionTime == nil {
				r.enqueue(&list.Items[i], q)
			}
		}
		since, w = time.Now(), clockWatch{from: r.Clock.Now().Round(0)}
	}
}

// clockWatch compares the clock with the time that has passed.
type clockWatch struct{ from time.Time }

// hasJumped reports whether the clock is further ahead than the time that has passed since from. A clock that is behind makes a new start,
// so that it is seen when it is set forward again.
func (w *clockWatch) hasJumped(clock time.Time, passed time.Duration) bool {
	ahead := clock.Sub(w.from) - passed
	if ahead < 0 {
		w.from = w.from.Add(ahead)
	}
	return ahead > tolerance
}
