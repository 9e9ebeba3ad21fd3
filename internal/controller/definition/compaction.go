package definition

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// compaction sets the condition CompactionReady: whether older turns can be summed up as a prompt asks for. The prompt works without that.
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
	setSecondary(ctx, w, skeinv1.ConditionCompactionReady, "when the window is full, the oldest turns are left out, without a summary", err)
}
