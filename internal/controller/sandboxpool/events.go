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
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// refillDelay is the pause between a claim and the reconcile of its pool. A pod that starts takes processor time on a
// node and time of the API server from the first run of the code for which the claim was made. The delay also lets
// one reconcile refill all claims of a burst.
const refillDelay = 100 * time.Millisecond

// podEvents enqueues a pool when one of its pods changed: at once, except after a claim.
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

// isClaim reports whether an update is the claim of a pod.
func isClaim(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[skeinv1.LabelSandboxState] == sandboxpod.Warm &&
		e.ObjectNew.GetLabels()[skeinv1.LabelSandboxState] == sandboxpod.Claimed
}

// poolOf maps a pod to its pool by label, because a claimed pod is owned by its Thread.
func poolOf(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[skeinv1.LabelPool]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

// podTurned passes updates of a pod that its pool depends on.
func podTurned() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		return ok1 && ok2 && (sandboxpod.IsReady(before) != sandboxpod.IsReady(after) || sandboxpod.IsOver(before) != sandboxpod.IsOver(after) ||
			sandboxpod.TroubleText(before) != sandboxpod.TroubleText(after) ||
			before.Labels[skeinv1.LabelSandboxState] != after.Labels[skeinv1.LabelSandboxState])
	}}
}
