package sandboxpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/engine/definition"
)

const (
	// countsAfter gathers changes of the counts. No client waits for the changes that a claim and its refill make, so a
	// claim costs two API writes in all.
	countsAfter = 30 * time.Second
	// scalingAfter is how long a pool may lack warm sandboxes, as after a claim, before it is not Ready.
	scalingAfter = 10 * time.Second
)

// writeStatus computes the whole status, and writes it when it changed and the limit of status writes allows it.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, failed error) (ctrl.Result, error) {
	before := s.object.DeepCopy()
	s.compute(r.ProcessMode, failed)
	if equality.Semantic.DeepEqual(before.Status, s.object.Status) {
		r.statusLimit.Done(s.req)
		return ctrl.Result{RequeueAfter: s.next}, nil
	}
	wait, write := r.statusLimit.Decide(s.req, gather(before.Status.Conditions, s.object.Status.Conditions), s.at)
	if !write {
		s.look(wait.After)
		return ctrl.Result{RequeueAfter: s.next}, nil
	}
	if written, err := conditions.WriteStatus(ctx, r.Client, r.Recorder, s.object, client.MergeFrom(before)); !written {
		return ctrl.Result{}, err
	}
	r.statusLimit.Done(s.req)
	r.recordEvent(before, s.object)
	return ctrl.Result{RequeueAfter: s.next}, nil
}

// gather returns how long a change may wait for others.
func gather(before, after []metav1.Condition) time.Duration {
	was, is := conditions.Ready(before), conditions.Ready(after)
	switch {
	case was.Status == is.Status && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration:
		return countsAfter // also for another text about the same trouble
	case was.Status == metav1.ConditionTrue && is.Reason == skeinv1.ReasonScaling && was.ObservedGeneration == is.ObservedGeneration:
		return scalingAfter
	default:
		return 0
	}
}

// compute is the only function that makes a pool's status.
func (s *scope) compute(processMode bool, failed error) {
	o, status := s.object, &s.object.Status
	status.ObservedGeneration = o.Generation
	w := conditions.Writer{List: &status.Conditions, Generation: o.Generation, Now: s.at}
	if failed != nil {
		reason, message := skeinv1.ReasonInternalError, conditions.Failure(failed)
		var known *definition.NotReadyError
		if errors.As(failed, &known) {
			reason, message = known.Reason, failed.Error()
		}
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, reason, message)
		return // the counts may be incomplete
	}
	status.Engine = cmp.Or(o.Spec.Engine, skeinv1.SandboxEngineQuickJS)
	status.DesiredWarm = int32(s.want)
	status.Warm = int32(s.pods.serving())
	status.Claimed = int32(len(s.pods.claimed))
	status.Starting = int32(len(s.pods.starting) - len(s.pods.stuck))
	status.Failing = int32(len(s.pods.stuck) + len(s.pods.over) + len(s.pods.sick))
	status.Outdated = int32(len(s.pods.old))
	// Pods that demand adds beyond the pool's own number do not count for readiness.
	missing := int(o.Spec.Warm) - s.pods.serving()
	full := o.Spec.Max > 0 && s.pods.alive() >= int(o.Spec.Max) && len(s.pods.starting) == 0
	switch {
	case s.trouble.Reason == skeinv1.ReasonInvalidSpec:
		status.DesiredWarm = 0
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, s.trouble.Reason, s.trouble.Text)
	case processMode:
		status.DesiredWarm = 0
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonProcessMode, "the manager runs sandboxes as local processes")
	case s.trouble.Text != "":
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, s.trouble.Reason, s.trouble.String())
	case missing > 0 && !full:
		w.Set(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonScaling, fmt.Sprintf("%d of %d warm sandboxes are ready", s.pods.serving(), o.Spec.Warm))
	default:
		w.Set(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonWarm, "")
	}
}

// isTroubled reports whether a pool's pods do not start.
func isTroubled(c metav1.Condition) bool {
	switch c.Reason {
	case skeinv1.ReasonInvalidSpec, skeinv1.ReasonPodsFailing, skeinv1.ReasonImageUnavailable, skeinv1.ReasonUnschedulable, skeinv1.ReasonQuotaExceeded, skeinv1.ReasonPodsRefused,
		skeinv1.ReasonSecretForbidden:
		return true
	}
	return false
}

// recordEvent records an Event when the pool's state changed.
func (r *Reconciler) recordEvent(before, after *skeinv1.SandboxPool) {
	was, is := conditions.Ready(before.Status.Conditions), conditions.Ready(after.Status.Conditions)
	switch {
	case isTroubled(is) && was.Reason != is.Reason:
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Fill", "%s", is.Message)
	case is.Status == metav1.ConditionTrue && isTroubled(was):
		r.Recorder.Eventf(after, nil, corev1.EventTypeNormal, is.Reason, "Fill", "sandboxes start again")
	}
}
