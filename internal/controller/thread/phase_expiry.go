package thread

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// setExpiry stores after how long the thread expires (THR-07): what the Thread sets, else what its agent sets. While the
// agent does not exist, the previous value applies.
func (r *Reconciler) setExpiry(ctx context.Context, s *scope) (bool, error) {
	if s.row == nil || s.object.Undecodable != "" {
		return false, nil
	}
	want := s.row.IdleExpiry
	switch {
	case s.object.Spec.IdleExpiry != nil:
		want = s.object.Spec.IdleExpiry.Microseconds()
	case s.agentSpec != nil && s.agentSpec.ThreadIdleExpiry != nil:
		want = s.agentSpec.ThreadIdleExpiry.Microseconds()
	case s.agentSpec != nil:
		want = 0
	}
	if want == s.row.IdleExpiry {
		return false, nil
	}
	if err := r.Threads.Store().Apply(ctx, s.row.ID, nil, &store.SetIdleExpiry{Expiry: want}); err != nil {
		return false, fmt.Errorf("set the idle expiry: %w", err)
	}
	return false, nil
}

// agentChanged passes changes of threadIdleExpiry and handoffPolicy of an agent.
func agentChanged() predicate.Predicate {
	none := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	none.UpdateFunc = func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*skeinv1.Agent)
		after, ok2 := e.ObjectNew.(*skeinv1.Agent)
		if !ok1 || !ok2 {
			return false
		}
		if before.Spec.HandoffPolicy != after.Spec.HandoffPolicy {
			return true
		}
		a, b := before.Spec.ThreadIdleExpiry, after.Spec.ThreadIdleExpiry
		return (a == nil) != (b == nil) || (a != nil && *a != *b)
	}
	return none
}
