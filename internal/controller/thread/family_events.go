package thread

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
)

// gatherFamily is how long the parents of new and changed Subagents wait for further changes. Each reconcile computes the whole status, and a
// parent may have thousands of children. The status itself shows them after familyAfter or countsAfter.
const gatherFamily = 100 * time.Millisecond

// parents enqueues the parents of Subagents.
func parents() handler.EventHandler {
	enqueue := func(o client.Object, q workqueue.TypedRateLimitingInterface[ctrl.Request], after time.Duration) {
		for _, parent := range parentOf(context.Background(), o) {
			q.AddAfter(parent, after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(e.Object, q, gatherFamily)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			after := gatherFamily
			if hasLeft(e) {
				after = 0
			}
			enqueue(e.ObjectOld, q, after)
			enqueue(e.ObjectNew, q, after)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			enqueue(e.Object, q, 0)
		},
	}
}

// hasLeft reports whether a Subagent is being deleted, or belongs to another parent, since an update. A parent that waits for it, or goes
// with it, is to know at once.
func hasLeft(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
		(metav1.GetControllerOfNoCopy(e.ObjectOld) == nil) != (metav1.GetControllerOfNoCopy(e.ObjectNew) == nil)
}

// parentOf maps a Subagent to its parent, whose status mirrors it.
func parentOf(_ context.Context, o client.Object) []ctrl.Request {
	s, ok := o.(*skeinv1.Subagent)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.ParentRef.Name}}}
}

// entryChanged passes updates that change the mirror of a Subagent, and records which parents may have lost a child.
func (r *Reconciler) entryChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			r.recordFamily(e.Object, false)
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*skeinv1.Subagent)
			after, ok2 := e.ObjectNew.(*skeinv1.Subagent)
			if !ok1 || !ok2 {
				return false
			}
			left := hasLeft(e)
			if !left && kube.Entry(before) == kube.Entry(after) {
				return false
			}
			parents := r.recordFamily(after, false)
			if left || kube.ChildEnded(kube.Entry(after).Status) && !kube.ChildEnded(kube.Entry(before).Status) {
				r.lost.uncheck(parents...)
			}
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.lost.uncheck(r.recordFamily(e.Object, true)...)
			return true
		},
	}
}

// recordFamily records that a Subagent has changed, and returns its parent.
func (r *Reconciler) recordFamily(o client.Object, gone bool) (parents []ctrl.Request) {
	parents = parentOf(context.Background(), o)
	if s, ok := o.(*skeinv1.Subagent); ok {
		r.families.record(change{s, gone}, parents...)
	}
	return parents
}
