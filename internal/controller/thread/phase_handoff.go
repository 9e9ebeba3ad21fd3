package thread

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// handOver gives the thread to another agent when spec.agentRef has changed (AGT-03). The thread stores the agent
// that was declared last, so that a tool that applies the same manifest again changes nothing, even if the
// conversation has passed to another agent since (K8S-03). A current run continues with the new agent before its next
// model call.
func (r *Reconciler) handOver(ctx context.Context, s *scope) (bool, error) {
	if s.problem != nil || s.row == nil || s.row.TerminatedAt != 0 {
		return false, nil
	}
	declared := s.object.Spec.AgentRef.Name
	if declared == s.row.DeclaredAgent {
		return false, nil
	}
	if declared != s.row.Agent {
		var a skeinv1.Agent
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: s.row.Agent}, &a, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read Agent %q: %w", s.row.Agent, err)
		}
		// A deleted agent cannot refuse the handoff.
		if !apierrors.IsNotFound(err) && !skeinv1.MayHandOver(s.object.Spec.HandoffPolicy, a.Spec.HandoffPolicy) {
			s.problem = &problem{skeinv1.ReasonHandoffRefused, fmt.Sprintf(
				"the conversation stays with Agent %q, whose handoffPolicy is Never: set spec.agentRef back to %q, or spec.handoffPolicy: Allow on this Thread",
				s.row.Agent, s.row.DeclaredAgent)}
			return false, nil
		}
	}
	op := &store.Handoff{Agent: declared, Declared: true, By: store.HandoffBySpec}
	if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, op); err != nil {
		return false, fmt.Errorf("hand the thread over to the agent that the spec names: %w", err)
	}
	return false, r.reload(ctx, s)
}
