// Package definition reconciles the definitions: Agent, Prompt, Model, Tool, Effect, ThreadEndpoint, ThreadGateway,
// Webhook and WebhookReceiver. They differ
// only in what they check and watch. A mistake becomes a condition that heals through a watch, never through a retry
// (K8S-02).
package definition

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// retryAfter is the pause before a retry after a failure of Skein itself, or without a right that it needs.
const retryAfter = 15 * time.Second

// object is a pointer to a definition.
type object[T any] interface {
	*T
	client.Object
	DecodingProblem() string
}

// reconciler maintains the Ready condition of one kind.
type reconciler[T any, P object[T]] struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	status   func(P) *skeinv1.DefinitionStatus
	// check returns what keeps an object from being used: a *definition.NotReadyError becomes the condition; another
	// error means that the check itself failed, and is retried.
	check func(context.Context, P) error
	// more sets the conditions that a kind has in addition to Ready. It may be nil.
	more func(context.Context, P, conditions.Writer)
	// again returns after how long to check once more. It may be nil.
	again func(P) time.Duration
}

// Reconcile checks one definition and writes its Ready condition when it changed.
func (r *reconciler[T, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := P(new(T))
	if err := r.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, nil
	}
	var err error
	if mistake := objects.CheckDecoded(obj); mistake != nil {
		err = mistake
	} else {
		err = r.check(ctx, obj)
	}
	var mistake *definition.NotReadyError
	if err != nil && !errors.As(err, &mistake) {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	if r.again != nil {
		result.RequeueAfter = r.again(obj)
	}
	if mistake != nil && (mistake.Reason == skeinv1.ReasonInternalError || mistake.Reason == skeinv1.ReasonSecretForbidden) {
		result.RequeueAfter = retryAfter // a failure of Skein, or a right that it lacks: no watched object heals it
	}
	before := obj.DeepCopyObject().(P)
	r.computeStatus(ctx, obj, mistake)
	if slices.ContainsFunc(r.status(obj).Conditions, isUnchecked) {
		result.RequeueAfter = retryAfter
	}
	if equality.Semantic.DeepEqual(r.status(before), r.status(obj)) {
		return result, nil
	}
	if err := r.client.Status().Patch(ctx, obj, client.MergeFrom(before)); err != nil {
		if conditions.Unwritable(r.recorder, obj, err) {
			return ctrl.Result{}, nil
		}
		// The object was deleted meanwhile, so there is nothing to report.
		return ctrl.Result{}, ignoreGone(err)
	}
	r.recordEvent(before, obj)
	return result, nil
}

// isUnchecked reports whether a condition other than Ready could not be determined.
func isUnchecked(c metav1.Condition) bool {
	return c.Status == metav1.ConditionUnknown && c.Reason == skeinv1.ReasonInternalError
}

// computeStatus computes the whole status.
func (r *reconciler[T, P]) computeStatus(ctx context.Context, obj P, mistake *definition.NotReadyError) {
	status := r.status(obj)
	status.ObservedGeneration = obj.GetGeneration()
	w := conditions.Writer{List: &status.Conditions, Generation: obj.GetGeneration(), Now: r.clock.Now()}
	if r.more != nil && objects.CheckDecoded(obj) == nil {
		r.more(ctx, obj, w)
	}
	if mistake == nil {
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		return
	}
	w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, mistake.Reason, mistake.Message)
}

// recordEvent records an Event when the Ready condition changed.
func (r *reconciler[T, P]) recordEvent(before, after P) {
	was, is := conditions.Ready(r.status(before).Conditions), conditions.Ready(r.status(after).Conditions)
	switch {
	case is.Status == metav1.ConditionFalse && (was.Status != is.Status || was.Reason != is.Reason):
		r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Check", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, skeinv1.ReasonReady, "Check", "all dependencies are ready")
	}
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
