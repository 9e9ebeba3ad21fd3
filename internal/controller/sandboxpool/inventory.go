package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// startTime is how long a pod may be unready before the pool reports that it does not start.
const startTime = 2 * time.Minute

// inventory groups the pods of a pool by their state.
type inventory struct {
	ready    []*corev1.Pod // warm and ready, of the present template
	starting []*corev1.Pod // warm, of the present template, not ready yet
	stuck    []*corev1.Pod // those of starting that have trouble
	old      []*corev1.Pod // warm and ready, of an old template
	stale    []*corev1.Pod // of an old template and not ready: useless
	sick     []*corev1.Pod // run, but have not been ready for a long time
	claimed  []*corev1.Pod
	over     []*corev1.Pod // have ended, in whatever state they were
	leaving  []*corev1.Pod // are being deleted
}

// warm returns the number of pods of the present template that are or will be warm.
func (c *inventory) warm() int { return len(c.ready) + len(c.starting) }

// serving returns the number of pods that a thread can claim at once.
func (c *inventory) serving() int { return len(c.ready) + len(c.old) }

// alive returns the number of pods that count against the pool's maximum.
func (c *inventory) alive() int { return c.warm() + len(c.old) + len(c.claimed) }

// count groups the pods of the pool and determines how many should be warm.
func (r *Reconciler) count(ctx context.Context, s *scope) error {
	hash := sandboxpod.TemplateHash(s.object, r.Settings)
	var taken []*corev1.Pod
	for _, state := range []string{sandboxpod.Warm, sandboxpod.Claimed} {
		var list corev1.PodList
		err := r.Client.List(ctx, &list, client.InNamespace(s.object.Namespace),
			client.MatchingFields{objects.IndexSandbox: objects.SandboxIndex(s.object.Name, state)}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("list the pods of the pool: %w", err)
		}
		// Sort, so that of several pods in trouble the same one is always reported.
		slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		for i := range list.Items {
			s.pods.add(&list.Items[i], state, hash, s.at)
			if state == sandboxpod.Claimed {
				taken = append(taken, &list.Items[i])
			}
		}
	}
	s.want = r.desiredWarm(s, taken)
	return nil
}

func (c *inventory) add(p *corev1.Pod, state, hash string, at time.Time) {
	current := p.Labels[skeinv1.LabelTemplateHash] == hash
	switch {
	case !p.DeletionTimestamp.IsZero():
		c.leaving = append(c.leaving, p)
	case sandboxpod.IsOver(p):
		c.over = append(c.over, p)
	case state == sandboxpod.Claimed:
		c.claimed = append(c.claimed, p)
	case sandboxpod.IsReady(p) && current:
		c.ready = append(c.ready, p)
	case sandboxpod.IsReady(p):
		c.old = append(c.old, p)
	case !current:
		c.stale = append(c.stale, p)
	case p.Status.Phase == corev1.PodRunning && at.Sub(sandboxpod.UnreadySince(p)) >= startTime:
		c.sick = append(c.sick, p)
	default:
		c.starting = append(c.starting, p)
		if sandboxpod.TroubleText(p) != "" || at.Sub(sandboxpod.UnreadySince(p)) >= startTime {
			c.stuck = append(c.stuck, p)
		}
	}
}
