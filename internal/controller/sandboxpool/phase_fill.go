package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// createAtOnce bounds the pods that one reconcile creates, so that a wrong template creates few.
const createAtOnce = 20

// fill creates the missing pods: at once after a claim, and after a growing pause when they fail.
func (r *Reconciler) fill(ctx context.Context, s *scope) error {
	missing := min(s.missing(), createAtOnce)
	if limit := int(s.object.Spec.Max); limit > 0 {
		missing = min(missing, limit-s.pods.alive())
	}
	if f := r.failureOf(s.req); f != nil && len(s.pods.ready) < s.want {
		s.trouble = f.trouble
		if rest := f.until.Sub(s.at); rest > 0 && missing > 0 {
			s.look(rest)
			return nil
		}
	}
	if len(s.pods.stuck) > 0 {
		s.trouble = stuck(s.pods.stuck[0])
	}
	for _, p := range s.pods.starting { // a pod that hangs without a reason is reported when its time is up
		s.look(startTime - s.at.Sub(sandboxpod.UnreadySince(p)))
	}
	if missing > 0 {
		room, err := r.room(ctx, s)
		if err != nil {
			return err
		}
		missing = min(missing, room)
	}
	return r.create(ctx, s, missing)
}

// missing returns how many pods of the present template to create. While old pods still serve, only a quarter of the
// number starts at a time: then a template that does not work costs little, and a rollout needs little room.
func (s *scope) missing() int {
	missing := s.want - s.pods.warm()
	if len(s.pods.old) == 0 {
		return missing
	}
	surge := max(1, (s.want+3)/4) - len(s.pods.starting)
	short := s.want - s.pods.serving() - len(s.pods.starting)
	return min(missing, max(surge, short))
}

// create creates n pods at once. If the API server refuses some of them, it notes the first refusal as the trouble of the pool, and
// the pool is looked at again later.
func (r *Reconciler) create(ctx context.Context, s *scope, n int) error {
	if n <= 0 {
		return nil
	}
	pods := make([]*corev1.Pod, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			pods[i] = sandboxpod.New(s.object, r.Settings)
			errs[i] = r.Client.Create(ctx, pods[i])
		})
	}
	wg.Wait()
	var refused *sandboxpod.Trouble
	for i, p := range pods {
		if errs[i] == nil {
			s.pods.starting = append(s.pods.starting, p)
		}
		if t := sandboxpod.RefusalOf(errs[i]); t != nil && refused == nil {
			refused, errs[i] = t, nil
		} else if t != nil {
			errs[i] = nil
		}
	}
	if refused != nil { // retrying at once is useless
		refused.Text = "pods are refused: " + refused.Text
		f := r.note(s, *refused)
		s.look(f.until.Sub(s.at))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("create sandbox pods: %w", err)
	}
	return nil
}

// stuck returns what keeps a pod from starting.
func stuck(p *corev1.Pod) sandboxpod.Trouble {
	t := sandboxpod.TroubleOf(p)
	if t.Text == "" {
		text := fmt.Sprintf("pod %q is not ready after %s", p.Name, startTime)
		if notSetUp(p) { // only Events say why
			text += fmt.Sprintf(": its node cannot set it up, for the reason that 'kubectl describe pod -n %s %s' shows", p.Namespace, p.Name)
		}
		return sandboxpod.Trouble{Reason: skeinv1.ReasonPodsFailing, Text: text}
	}
	t.Text = fmt.Sprintf("pod %q: %s", p.Name, t.Text)
	return t
}

// notSetUp reports whether a pod has a node that has not made its network and its namespaces yet.
func notSetUp(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse
	})
}
