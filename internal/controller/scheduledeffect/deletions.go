package scheduledeffect

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/store"
)

// deletion is the deletion of an object.
type deletion struct {
	id      string // its UID
	oneTime bool
}

// deletions holds the deletions of objects of which something is stored, by name. Several objects may have had a name before a reconcile
// of it succeeds.
type deletions struct {
	mu  sync.Mutex
	all map[ctrl.Request][]deletion
}

func (d *deletions) add(req ctrl.Request, one deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[ctrl.Request][]deletion{}
	}
	if !slices.Contains(d.all[req], one) {
		d.all[req] = append(d.all[req], one)
	}
}

func (d *deletions) of(req ctrl.Request) []deletion {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all[req])
}

func (d *deletions) remove(req ctrl.Request, one deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := slices.DeleteFunc(d.all[req], func(other deletion) bool { return other == one })
	if len(rest) == 0 {
		delete(d.all, req)
		return
	}
	d.all[req] = rest
}

// forget removes what is stored of objects of a name that were deleted, except the one that has the name now. Their firings that are under
// way are canceled by that.
func (r *Reconciler) forget(ctx context.Context, req ctrl.Request, now types.UID) error {
	for _, d := range r.deleted.of(req) {
		if d.id == string(now) {
			continue
		}
		var err error
		if d.oneTime {
			err = r.cancelFirings(ctx, d.id)
		} else {
			err = r.Store.ForgetEffect(ctx, d.id)
		}
		if err != nil {
			return fmt.Errorf("forget a deleted ScheduledEffect: %w", err)
		}
		r.deleted.remove(req, d)
	}
	return nil
}

// cancelFirings cancels what is under way of a deleted effect of one time. What is stored of it stays for a while: see endedFor.
func (r *Reconciler) cancelFirings(ctx context.Context, id string) error {
	active, err := r.Store.Firings(ctx, store.FiringQuery{EffectID: id, Active: true, Brief: true})
	if err != nil || len(active) == 0 {
		return err
	}
	keys := make([]store.FiringKey, len(active))
	for i := range active {
		keys[i] = active[i].Key()
	}
	_, err = r.Store.CancelFirings(ctx, "the ScheduledEffect was deleted", keys...)
	return err
}
