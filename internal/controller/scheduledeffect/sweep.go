package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// replaced forgets a deleted object that one of the same name has replaced.
func (r *Reconciler) replaced(ctx context.Context, req ctrl.Request, uid types.UID) error {
	if id, ok := r.deleted.Load(req); !ok || id == string(uid) {
		return nil
	}
	return r.forget(ctx, req)
}

// forget removes what is stored of an object with a schedule that was deleted. Its firings that are under way are canceled by that.
func (r *Reconciler) forget(ctx context.Context, req ctrl.Request) error {
	id, ok := r.deleted.Load(req)
	if !ok {
		return nil
	}
	if err := r.Store.ForgetEffect(ctx, id.(string)); err != nil {
		return fmt.Errorf("forget a deleted ScheduledEffect: %w", err)
	}
	r.deleted.CompareAndDelete(req, id)
	return nil
}

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

// Sweep removes what is stored of objects that do not exist any more.
func (r *Reconciler) Sweep(ctx context.Context) error {
	for after := ""; ; {
		// The store is read before the cache, so that an object which is made in between is not taken for deleted.
		ids, err := r.Store.StoredEffects(ctx, after, r.Clock.Now().Add(-sweepEvery), sweepPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		var list skeinv1.ScheduledEffectList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list ScheduledEffects: %w", err)
		}
		there := make(map[string]bool, len(list.Items))
		for i := range list.Items {
			there[string(list.Items[i].UID)] = true
		}
		for _, id := range ids {
			if there[id] {
				continue
			}
			gone, err := r.gone(ctx, id)
			if err != nil {
				return err
			}
			if !gone {
				continue
			}
			if err := r.Store.ForgetEffect(ctx, id); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

// gone reports whether the object of a stored schedule does not exist. The cache may lack its namespace, so the API server is asked. Where
// this manager may not read, nothing is gone.
func (r *Reconciler) gone(ctx context.Context, id string) (bool, error) {
	stored, err := r.Store.EffectSchedule(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if stored.Namespace == "" { // it was removed before it had a schedule
		return true, nil
	}
	var o skeinv1.ScheduledEffect
	err = r.live().Get(ctx, client.ObjectKey{Namespace: stored.Namespace, Name: stored.Name}, &o)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read ScheduledEffect %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	return string(o.UID) != id, nil
}
