package sandboxpool

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
)

// refillDelay is how long after a claim its pool is looked at. A pod that starts takes the processors of a node, and
// the API server's time, from the first run of the code that the claim was for; and the claims of a burst are
// refilled together.
const refillDelay = 100 * time.Millisecond

// podEvents lets a pool be looked at when one of its pods turned: at once, but for a claim.
func podEvents() handler.EventHandler {
	atOnce := handler.EnqueueRequestsFromMapFunc(poolOf)
	return handler.Funcs{
		CreateFunc:  atOnce.Create,
		DeleteFunc:  atOnce.Delete,
		GenericFunc: atOnce.Generic,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if !isClaim(e) {
				atOnce.Update(ctx, e, q)
				return
			}
			for _, req := range poolOf(ctx, e.ObjectNew) {
				q.AddAfter(req, refillDelay)
			}
		},
	}
}

// isClaim tells whether a pod became a thread's.
func isClaim(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[skeinv1.LabelSandboxState] == kube.SandboxWarm &&
		e.ObjectNew.GetLabels()[skeinv1.LabelSandboxState] == kube.SandboxClaimed
}

// poolOf maps a pod to its pool by label: a claimed one is owned by its Thread.
func poolOf(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[skeinv1.LabelPool]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

// podTurned passes what of a pod its pool depends on.
func podTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		return ok1 && ok2 && (kube.PodReady(before) != kube.PodReady(after) || kube.PodOver(before) != kube.PodOver(after) ||
			kube.PodTrouble(before) != kube.PodTrouble(after) ||
			before.Labels[skeinv1.LabelSandboxState] != after.Labels[skeinv1.LabelSandboxState])
	}}
}
