package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// leaveTime is how long after its grace period a pod may still be terminating. Then the node that should confirm its
// end counts as lost. Nothing else has to wait for a sandbox.
const leaveTime = 30 * time.Second

// clean deletes useless pods: pods that have ended or whose end no node confirms, pods that do not answer any more,
// pods of an old template once new ones have replaced them, and pods beyond the desired number.
func (r *Reconciler) clean(ctx context.Context, s *scope) error {
	if err := r.removeUnconfirmed(ctx, s); err != nil {
		return err
	}
	if err := r.removeAll(ctx, s.pods.stale); err != nil {
		return err
	}
	if err := r.removeFailed(ctx, s); err != nil {
		return err
	}
	r.heal(s)
	if err := r.retire(ctx, s); err != nil {
		return err
	}
	return r.shrink(ctx, s)
}

// removeUnconfirmed removes pods whose end no node confirms.
func (r *Reconciler) removeUnconfirmed(ctx context.Context, s *scope) error {
	for _, p := range s.pods.leaving {
		if rest := p.DeletionTimestamp.Add(leaveTime).Sub(s.at); rest > 0 {
			s.look(rest)
			continue
		}
		if err := r.remove(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// removeFailed removes pods that have ended or do not answer any more. Several warm pods that failed together count
// as one failure.
func (r *Reconciler) removeFailed(ctx context.Context, s *scope) error {
	if err := r.removeAll(ctx, append(slices.Clone(s.pods.over), s.pods.sick...)); err != nil {
		return err
	}
	// A claimed pod that ended has worked, so it does not count as a failure of the template.
	i := slices.IndexFunc(s.pods.over, func(p *corev1.Pod) bool { return p.Labels[skeinv1.LabelSandboxState] == sandboxpod.Warm })
	switch {
	case i >= 0:
		t := sandboxpod.TroubleOf(s.pods.over[i])
		t.Text = fmt.Sprintf("pod %q ended: %s", s.pods.over[i].Name, t.Text)
		r.note(s, t)
	case len(s.pods.sick) > 0:
		r.note(s, sandboxpod.Trouble{Reason: skeinv1.ReasonPodsFailing, Text: fmt.Sprintf("pod %q has not answered for %s", s.pods.sick[0].Name, startTime)})
	}
	return nil
}

// retire deletes pods of an old template that new ones have replaced.
func (r *Reconciler) retire(ctx context.Context, s *scope) error {
	for len(s.pods.old) > 0 && s.pods.serving() > s.want {
		if err := r.removeOld(ctx, s); err != nil {
			return err
		}
	}
	// A full pool has no room for a new pod beside an old one, so delete the old one first.
	if limit := int(s.object.Spec.Max); limit > 0 && len(s.pods.old) > 0 && s.pods.warm() < s.want && s.pods.alive() >= limit {
		return r.removeOld(ctx, s)
	}
	return nil
}

func (r *Reconciler) removeOld(ctx context.Context, s *scope) error {
	err := r.remove(ctx, s.pods.old[0])
	s.pods.old = s.pods.old[1:]
	return err
}

// shrink deletes pods beyond the desired number, starting ones first.
func (r *Reconciler) shrink(ctx context.Context, s *scope) error {
	for s.pods.warm() > s.want {
		from := &s.pods.starting
		if len(*from) == 0 {
			from = &s.pods.ready
		}
		last := len(*from) - 1
		if err := r.remove(ctx, (*from)[last]); err != nil {
			return err
		}
		*from = slices.Delete(*from, last, last+1)
	}
	return nil
}

func (r *Reconciler) removeAll(ctx context.Context, pods []*corev1.Pod) error {
	for _, p := range pods {
		if err := r.remove(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a pod unless it was claimed meanwhile.
func (r *Reconciler) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.Client.Delete(ctx, p.DeepCopy(), client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}, client.GracePeriodSeconds(0))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its next event causes another reconcile
	}
	if err != nil {
		return fmt.Errorf("delete pod %q: %w", p.Name, err)
	}
	return nil
}
