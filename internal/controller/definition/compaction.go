package definition

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// compaction sets whether older turns can be summed up as a prompt asks for. The prompt works without that.
func (c *checker) compaction(ctx context.Context, p *skeinv1.Prompt, w conditions.Writer) {
	policy := p.Spec.Compaction
	if policy == nil || policy.Mode == skeinv1.CompactionNever {
		meta.RemoveStatusCondition(w.List, skeinv1.ConditionCompactionReady)
		return
	}
	var own, by skeinv1.Model
	ref, field := p.Spec.ModelRef, "spec.modelRef"
	err := c.checkReady(ctx, "Model", p.Namespace, ref.Name, field, &own, func() []metav1.Condition { return own.Status.Conditions })
	if err == nil {
		if policy.ModelRef != nil {
			ref, field = *policy.ModelRef, "spec.compaction.modelRef"
		}
		err = c.checkReady(ctx, "Model", p.Namespace, ref.Name, field, &by, func() []metav1.Condition { return by.Status.Conditions })
	}
	if err == nil {
		err = definitions.CheckCompaction(p, &own, &by)
	}
	var unusable *definition.NotReadyError
	switch {
	case err == nil:
		w.Set(skeinv1.ConditionCompactionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	case errors.As(err, &unusable):
		w.Set(skeinv1.ConditionCompactionReady, metav1.ConditionFalse, unusable.Reason, "older turns are left out at the end of the window, and not summed up: "+unusable.Message)
	default:
		ctrl.LoggerFrom(ctx).Error(err, "cannot check what is beside Ready; this is tried again")
		w.Set(skeinv1.ConditionCompactionReady, metav1.ConditionUnknown, skeinv1.ReasonInternalError, conditions.Failure(err))
	}
}
