package thread

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
)

// agent finds out whether the thread's agent can run it, and wakes a thread whose work waited for that.
func (r *Reconciler) agent(ctx context.Context, s *scope) (bool, error) {
	if s.problem != nil || s.row == nil {
		return false, nil
	}
	name := s.row.Agent
	var a skeinv1.Agent
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &a, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Agent %q does not exist in namespace %q: create it, or correct spec.agentRef", name, s.object.Namespace)}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Agent %q: %w", name, err)
	}
	s.agentSpec = &a.Spec
	switch c := conditions.Ready(a.Status.Conditions); c.Status {
	case metav1.ConditionFalse:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Agent %q is not ready: %s", name, c.Message)}
	case metav1.ConditionUnknown:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Agent %q has not been checked yet", name)}
	default:
		// A run that found a definition missing has left its work in the inbox (SPEC K8S-02).
		if conditions.Ready(s.object.Status.Conditions).Status != metav1.ConditionTrue {
			r.Engine.Wake(s.row.ID)
		}
	}
	return false, nil
}
