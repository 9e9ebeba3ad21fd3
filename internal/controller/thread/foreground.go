package thread

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// foreground remembers the Threads that are deleted in the foreground, and the objects of their children that go with them. The garbage
// collector takes its finalizer from such a Thread once it knows of no object to wait for, and it may not have seen one that was created a
// moment ago. From then on nothing else says how the Thread was deleted. It is safe for concurrent use.
//
// The objects are those that this controller deletes, and Threads of stored children that it finds being deleted. For what others delete, and
// for what was deleted before a change of the leader, the garbage collector alone waits.
type foreground struct {
	mu      sync.Mutex
	threads *lru.Cache // by the UID of a Thread: its dependents
	owners  *lru.Cache // by the UID of an object: the *owner of which it is a dependent
}

// owner is a Thread that is deleted in the foreground.
type owner struct {
	thread types.UID
	waits  *ctrl.Request // to reconcile the Thread when the object ends; nil while it does not wait for this one
}

// dependents are the objects that go with a Thread, by their UID.
type dependents map[types.UID]metav1.PartialObjectMetadata

func newForeground() *foreground {
	return &foreground{threads: lru.New(maxReleased), owners: lru.New(maxReleased)}
}

// seen passes every event, and notes Threads that are deleted in the foreground. The API server sets the finalizer and the time of the
// deletion at once, but a reconcile may come when the finalizer is gone.
func (f *foreground) seen() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		f.note(o)
		return true
	})
}

// note notes a Thread if it is deleted in the foreground. It forgets one that was deleted once more with orphaned dependents: the API
// server then puts the one finalizer in the place of the other.
func (f *foreground) note(o client.Object) {
	orphans := controllerutil.ContainsFinalizer(o, metav1.FinalizerOrphanDependents)
	if o.GetDeletionTimestamp().IsZero() || !orphans && !controllerutil.ContainsFinalizer(o, metav1.FinalizerDeleteDependents) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if orphans {
		f.threads.Remove(o.GetUID())
	} else if f.of(o.GetUID()) == nil {
		f.threads.Add(o.GetUID(), dependents{})
	}
}

// of returns the dependents of a Thread, or nil when it is not deleted in the foreground. The caller holds mu.
func (f *foreground) of(thread types.UID) dependents {
	known, _ := f.threads.Get(thread)
	with, _ := known.(dependents)
	return with
}

// add adds an object that goes with a Thread. It reports whether the Thread is deleted in the foreground; otherwise it does nothing.
func (f *foreground) add(thread types.UID, kind string, o client.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	with := f.of(thread)
	if with == nil {
		return false
	}
	f.owners.Add(o.GetUID(), &owner{thread: thread})
	with[o.GetUID()] = metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()},
	}
	return true
}

// next returns one of the objects that go with a Thread, or nil. The end of the object enqueues the request.
func (f *foreground) next(thread types.UID, req ctrl.Request) *metav1.PartialObjectMetadata {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, o := range f.of(thread) {
		f.owners.Add(uid, &owner{thread, &req}) // before it is read: its end may come right after
		return &o
	}
	return nil
}

// remove removes an object that a Thread does not wait for any longer.
func (f *foreground) remove(thread, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners.Remove(uid)
	delete(f.of(thread), uid)
}

// ends removes objects that have ended, so that no Thread reads them again, and enqueues the Thread that waits for one.
func (f *foreground) ends() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		if known, ok := f.owners.Get(e.Object.GetUID()); ok {
			o := known.(*owner)
			f.remove(o.thread, e.Object.GetUID())
			if o.waits != nil {
				q.Add(*o.waits)
			}
		}
	}}
}

// awaitsObjects reports whether a Thread that is deleted in the foreground has to wait for objects of its children. While the garbage
// collector waits for some, it need not look: the Thread cannot go, and is reconciled when the finalizer is removed.
func (r *Reconciler) awaitsObjects(ctx context.Context, s *scope) (bool, error) {
	if controllerutil.ContainsFinalizer(s.object, metav1.FinalizerDeleteDependents) {
		return true, nil
	}
	for range childrenAtOnce {
		o := r.foreground.next(s.object.UID, s.req)
		if o == nil {
			return false, nil
		}
		now := metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), &now)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("read %s %q of a subagent: %w", o.Kind, o.Name, err)
		case err == nil && now.UID == o.UID && !now.DeletionTimestamp.IsZero():
			s.again = lostNotification
			return true, nil
		}
		r.foreground.remove(s.object.UID, o.UID)
	}
	s.again = nextChildren
	return true, nil
}
