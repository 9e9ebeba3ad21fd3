package sandboxpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
)

const (
	// createAtOnce bounds the pods that one reconcile makes, so that a wrong template makes few.
	createAtOnce = 20
	// startTime is how long a pod may take before the pool says that it does not come up.
	startTime = 2 * time.Minute

	backoffFirst = time.Second
	backoffMax   = 5 * time.Minute
)

// census is the pods of a pool by what they are.
type census struct {
	ready    []*corev1.Pod // warm, of the present template
	starting []*corev1.Pod // the same, not ready yet
	stuck    []*corev1.Pod // of those that start, the ones with trouble
	old      []*corev1.Pod // warm, of an old template
	claimed  []*corev1.Pod
	over     []*corev1.Pod // have ended, of whatever state
	leaving  int           // are being deleted
}

// warm counts the pods that are or will be warm by the present template.
func (c *census) warm() int { return len(c.ready) + len(c.starting) }

// alive counts the pods that the pool's bound counts.
func (c *census) alive() int { return c.warm() + len(c.old) + len(c.claimed) }

// count sorts the pods of the pool.
func (r *Reconciler) count(ctx context.Context, s *scope) error {
	hash := kube.SandboxTemplateHash(s.object, r.Settings)
	for _, state := range []string{kube.SandboxWarm, kube.SandboxClaimed} {
		var list corev1.PodList
		err := r.Client.List(ctx, &list, client.InNamespace(s.object.Namespace),
			client.MatchingFields{kube.IndexSandbox: kube.SandboxIndex(s.object.Name, state)}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("list the pods of the pool: %w", err)
		}
		// Always the same order, so that of several pods in trouble the same one is told of.
		slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		for i := range list.Items {
			s.pods.add(&list.Items[i], state, hash, s.at)
		}
	}
	return nil
}

func (c *census) add(p *corev1.Pod, state, hash string, at time.Time) {
	switch {
	case !p.DeletionTimestamp.IsZero():
		c.leaving++
	case kube.PodOver(p):
		c.over = append(c.over, p)
	case state == kube.SandboxClaimed:
		c.claimed = append(c.claimed, p)
	case p.Labels[skeinv1.LabelTemplateHash] != hash:
		c.old = append(c.old, p)
	case kube.PodReady(p):
		c.ready = append(c.ready, p)
	default:
		c.starting = append(c.starting, p)
		if kube.PodTrouble(p) != "" || at.Sub(p.CreationTimestamp.Time) > startTime {
			c.stuck = append(c.stuck, p)
		}
	}
}

// failure is what is remembered of a pool whose pods fail.
type failure struct {
	count int
	until time.Time // no pod is made before
	cause string
}

// clean deletes what is of no use: pods that have ended, pods of an old template as far as new ones have
// taken their place, and pods above the number.
func (r *Reconciler) clean(ctx context.Context, s *scope) error {
	var failed *corev1.Pod
	for _, p := range s.pods.over {
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		// A claimed one that ended has served somebody; it says nothing of the template.
		if p.Labels[skeinv1.LabelSandboxState] == kube.SandboxWarm {
			failed = p
		}
	}
	switch { // several that failed together are one failure
	case failed != nil:
		r.note(s, fmt.Sprintf("pod %q ended: %s", failed.Name, kube.PodTrouble(failed)))
	case len(s.pods.ready) > 0:
		r.noteSuccess(s)
	}
	want := int(s.object.Spec.Warm)
	spare := len(s.pods.ready) + len(s.pods.old) - want
	for len(s.pods.old) > 0 && spare > 0 {
		if err := r.remove(ctx, s.pods.old[0]); err != nil {
			return err
		}
		s.pods.old = s.pods.old[1:]
		spare--
	}
	// A full pool has no room for a new pod beside an old one, so the old one goes first.
	if limit := int(s.object.Spec.Max); limit > 0 && len(s.pods.old) > 0 && s.pods.warm() < want && s.pods.alive() >= limit {
		if err := r.remove(ctx, s.pods.old[0]); err != nil {
			return err
		}
		s.pods.old = s.pods.old[1:]
	}
	return r.shrink(ctx, s, want)
}

// shrink deletes pods above the number, those that start first.
func (r *Reconciler) shrink(ctx context.Context, s *scope, want int) error {
	for s.pods.warm() > want {
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

// remove deletes a pod unless somebody claimed it in the meantime.
func (r *Reconciler) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.Client.Delete(ctx, p.DeepCopy(), client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}, client.GracePeriodSeconds(0))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its next event leads here again
	}
	if err != nil {
		return fmt.Errorf("delete pod %q: %w", p.Name, err)
	}
	return nil
}

// fill makes the pods that are missing, at once after a claim and after a growing pause when they fail.
func (r *Reconciler) fill(ctx context.Context, s *scope) error {
	missing := min(int(s.object.Spec.Warm)-s.pods.warm(), createAtOnce)
	if limit := int(s.object.Spec.Max); limit > 0 {
		missing = min(missing, limit-s.pods.alive())
	}
	if f := r.failed(s.req); f != nil && len(s.pods.ready) < int(s.object.Spec.Warm) {
		s.cause = f.cause
		if rest := f.until.Sub(s.at); rest > 0 && missing > 0 {
			s.look(rest)
			return nil
		}
	}
	if len(s.pods.stuck) > 0 {
		s.cause = describeStuck(s.pods.stuck[0])
	}
	for _, p := range s.pods.starting { // one that hangs without a reason is told of when its time is up
		s.look(startTime - s.at.Sub(p.CreationTimestamp.Time))
	}
	return r.create(ctx, s, missing)
}

func (r *Reconciler) create(ctx context.Context, s *scope, n int) error {
	if n <= 0 {
		return nil
	}
	pods := make([]*corev1.Pod, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			pods[i] = kube.SandboxPod(s.object, r.Settings)
			errs[i] = r.Client.Create(ctx, pods[i])
		})
	}
	wg.Wait()
	for i, p := range pods {
		if errs[i] == nil {
			s.pods.starting = append(s.pods.starting, p)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(errs[0]), apierrors.IsInvalid(errs[0]):
		// A quota, an admission policy or a value of the template that no schema could catch: it will not go
		// away by trying at once.
		f := r.note(s, "pods are refused: "+errs[0].Error())
		s.look(f.until.Sub(s.at))
		return nil
	default:
		return fmt.Errorf("create sandbox pods: %w", err)
	}
}

func describeStuck(p *corev1.Pod) string {
	if t := kube.PodTrouble(p); t != "" {
		return fmt.Sprintf("pod %q: %s", p.Name, t)
	}
	return fmt.Sprintf("pod %q is not ready after %s", p.Name, startTime)
}

// note counts a failure, and puts off the next pod for longer each time.
func (r *Reconciler) note(s *scope, cause string) failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failures[s.req]
	if f == nil {
		f = &failure{}
		r.failures[s.req] = f
	}
	f.count++
	f.cause = cause
	f.until = s.at.Add(min(backoffFirst<<min(f.count-1, 20), backoffMax))
	s.cause = cause
	return *f
}

// noteSuccess forgets failures once a pod has come up.
func (r *Reconciler) noteSuccess(s *scope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.failures[s.req]; f != nil && !s.at.Before(f.until) {
		delete(r.failures, s.req)
	}
}

func (r *Reconciler) failed(req ctrl.Request) *failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.failures[req]; f != nil {
		c := *f
		return &c
	}
	return nil
}
