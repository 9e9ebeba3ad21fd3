package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// sweepEvery is how often the store is searched for effects whose deletion no manager saw.
	sweepEvery = 10 * time.Minute
	sweepPage  = 500
)

func (r *Reconciler) sweepLoop(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		if err := r.Sweep(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot look for deleted ScheduledEffects")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// endedFor is how long the firing of a one-time effect is kept after its end. Until then it keeps a replica that stood still, and still has
// the object in its cache, from recording the firing again.
const endedFor = time.Hour

// Sweep removes what is stored of objects that do not exist any more, and cancels their firings.
func (r *Reconciler) Sweep(ctx context.Context) error {
	var list skeinv1.ScheduledEffectList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list ScheduledEffects: %w", err)
	}
	there := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		there[string(list.Items[i].UID)] = true
	}
	if err := r.sweepSchedules(ctx, there); err != nil {
		return err
	}
	if err := r.sweepUnended(ctx, there); err != nil {
		return err
	}
	return r.sweepEnded(ctx, there)
}

// sweepSchedules removes schedules of objects that are gone. The objects in there exist.
func (r *Reconciler) sweepSchedules(ctx context.Context, there map[string]bool) error {
	for after := ""; ; {
		ids, err := r.Store.StoredEffects(ctx, after, r.Clock.Now().Add(-sweepEvery), sweepPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if there[id] {
				continue
			}
			stored, err := r.Store.EffectSchedule(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if err := r.forgetGone(ctx, store.FiredEffect{EffectID: id, Namespace: stored.Namespace, Name: stored.Name}); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

// sweepUnended cancels firings that have not ended, and whose objects are gone. A firing is recorded of an object that exists, so one that the
// API server does not have was deleted, however short a time ago the firing was recorded.
func (r *Reconciler) sweepUnended(ctx context.Context, there map[string]bool) error {
	for after := ""; ; {
		unended, err := r.Store.UnendedEffects(ctx, after, sweepPage)
		if err != nil || len(unended) == 0 {
			return err
		}
		for _, e := range unended {
			if there[e.EffectID] {
				continue
			}
			gone, err := r.isGone(ctx, e)
			if err == nil && gone {
				err = r.forgetUnended(ctx, e.EffectID)
			}
			if err != nil {
				return err
			}
		}
		after = unended[len(unended)-1].EffectID
	}
}

// forgetUnended cancels the firings of an effect whose object is gone, and removes its schedule, if it has one.
func (r *Reconciler) forgetUnended(ctx context.Context, id string) error {
	_, err := r.Store.EffectSchedule(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return r.cancelFirings(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("read the schedule of a deleted ScheduledEffect: %w", err)
	}
	return r.Store.ForgetEffect(ctx, id)
}

// sweepEnded removes firings of one-time effects that have ended, and whose objects are gone.
func (r *Reconciler) sweepEnded(ctx context.Context, there map[string]bool) error {
	for after := ""; ; {
		ended, err := r.Store.EndedEffects(ctx, after, r.Clock.Now().Add(-endedFor), sweepPage)
		if err != nil || len(ended) == 0 {
			return err
		}
		for _, e := range ended {
			if there[e.EffectID] {
				continue
			}
			if err := r.forgetGone(ctx, e); err != nil {
				return err
			}
		}
		after = ended[len(ended)-1].EffectID
	}
}

// forgetGone removes what is stored of an effect whose object does not exist.
func (r *Reconciler) forgetGone(ctx context.Context, e store.FiredEffect) error {
	gone, err := r.isGone(ctx, e)
	if err != nil || !gone {
		return err
	}
	return r.Store.ForgetEffect(ctx, e.EffectID)
}

// isGone reports whether the object of an effect does not exist. The cache may lack its namespace, so the API server is asked. Where this
// manager may not read, nothing is gone.
func (r *Reconciler) isGone(ctx context.Context, e store.FiredEffect) (bool, error) {
	if e.Namespace == "" { // it was removed before it had a schedule
		return true, nil
	}
	var o skeinv1.ScheduledEffect
	err := r.live().Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read ScheduledEffect %s/%s: %w", e.Namespace, e.Name, err)
	}
	return string(o.UID) != e.EffectID, nil
}
