package scheduledeffect

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// unowned holds the Threads of effects that have no owner reference, because they are likely to be over soon, or until it is written.
type unowned struct {
	mu  sync.Mutex
	all map[ctrl.Request]lent
	of  map[types.UID]map[ctrl.Request]struct{} // the effects by Thread, so that an event of one looks at no other's
}

// lent is an effect and its Thread.
type lent struct {
	effect, thread types.UID
	deleted        bool // whether the Thread was deleted, and the effect goes with it
}

// add remembers the first Thread of an effect, and reports whether it was unknown until now.
func (u *unowned) add(req ctrl.Request, of lent) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all, u.of = map[ctrl.Request]lent{}, map[types.UID]map[ctrl.Request]struct{}{}
	}
	if u.all[req].effect == of.effect {
		return false
	}
	u.drop(req) // an earlier effect of the name
	u.all[req] = of
	if u.of[of.thread] == nil {
		u.of[of.thread] = map[ctrl.Request]struct{}{}
	}
	u.of[of.thread][req] = struct{}{}
	return true
}

// drop removes an effect. The caller holds mu.
func (u *unowned) drop(req ctrl.Request) {
	of, ok := u.all[req]
	if !ok {
		return
	}
	delete(u.all, req)
	delete(u.of[of.thread], req)
	if len(u.of[of.thread]) == 0 {
		delete(u.of, of.thread)
	}
}

// hasLostThread reports whether the first Thread of an effect is not the one that has the name now, and whether the event of its deletion
// was handled. The present Thread has no UID if there is none.
func (u *unowned) hasLostThread(req ctrl.Request, now lent) (lost, handled bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.all[req]
	lost = was.effect == now.effect && was.thread != now.thread
	return lost, lost && was.deleted
}

func (u *unowned) forget(req ctrl.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(req)
}

// noteThread notes what an event says of a Thread. The effects of one that is deleted without what it owns are not its effects any more.
func (u *unowned) noteThread(t *skeinv1.Thread, deleted bool) {
	leaves := leavesDependents(t)
	if !leaves && !deleted {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for req := range u.of[t.UID] {
		if leaves {
			u.drop(req)
			continue
		}
		of := u.all[req]
		of.deleted = true
		u.all[req] = of
	}
}

// threadEvents notes what becomes of the Threads of effects without an owner reference. A reconcile cannot: the garbage collector takes
// the finalizer that says --cascade=orphan away within milliseconds, and the cache then has the Thread without it or not at all.
type threadEvents struct {
	handler.EventHandler
	unowned *unowned
}

func (r *Reconciler) byThread(enqueue handler.EventHandler) handler.EventHandler {
	return threadEvents{enqueue, &r.unowned}
}

// Update implements handler.EventHandler. After a watch has begun anew, an update may replace a Thread by another one of its name.
func (h threadEvents) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	before, ok1 := e.ObjectOld.(*skeinv1.Thread)
	after, ok2 := e.ObjectNew.(*skeinv1.Thread)
	if ok1 && ok2 {
		h.unowned.noteThread(before, before.UID != after.UID)
		h.unowned.noteThread(after, false)
	}
	h.EventHandler.Update(ctx, e, q)
}

// Delete implements handler.EventHandler.
func (h threadEvents) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	if t, ok := e.Object.(*skeinv1.Thread); ok {
		h.unowned.noteThread(t, true)
	}
	h.EventHandler.Delete(ctx, e, q)
}
