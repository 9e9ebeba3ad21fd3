package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// isolationPoll is how often the NetworkPolicy of a new pool is looked for.
const isolationPoll = 50 * time.Millisecond

// awaitIsolation waits until the pool's pods are isolated: until the NetworkPolicy that the pool's controller makes is there. No code
// of a thread runs in a pod before.
func (s *Pods) awaitIsolation(ctx context.Context, pool *skeinv1.SandboxPool) error {
	var missing error
	err := wait.PollUntilContextTimeout(ctx, isolationPoll, s.StartTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		missing, err = s.isolationProblem(ctx, pool)
		return missing == nil, err
	})
	if missing != nil && ctx.Err() == nil && (err == nil || wait.Interrupted(err) || errors.Is(err, context.DeadlineExceeded)) {
		return noSandbox("SandboxPool %q is not isolated: %w", pool.Name, missing)
	}
	return err
}

// isolationProblem returns why nothing isolates the pool's pods; nil when its NetworkPolicy does.
func (s *Pods) isolationProblem(ctx context.Context, pool *skeinv1.SandboxPool) (missing, err error) {
	name := sandboxpod.PolicyName(pool.Name)
	var p networkingv1.NetworkPolicy
	err = s.Client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: name}, &p, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("its NetworkPolicy %q does not exist yet", name), nil
	case err != nil:
		return nil, fmt.Errorf("read NetworkPolicy %q: %w", name, err)
	case !metav1.IsControlledBy(&p, pool):
		return fmt.Errorf("the NetworkPolicy %q is not this pool's: delete or rename it", name), nil
	case !p.DeletionTimestamp.IsZero():
		return fmt.Errorf("its NetworkPolicy %q is being deleted", name), nil
	case len(p.Spec.Egress) > 0 || len(p.Spec.PolicyTypes) < 2 || p.Spec.PodSelector.MatchLabels[skeinv1.LabelPool] != pool.Name:
		return fmt.Errorf("its NetworkPolicy %q was changed, and the controller is about to restore it", name), nil
	}
	return nil, nil
}
