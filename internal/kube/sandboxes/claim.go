package sandboxes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/store"
)

// quick makes a list return at once, without waiting until the cache has this process's own writes. Use it where a
// stale answer does no harm.
const quick = client.DisableReadYourWritesConsistency

// podsOf returns the pods of a pool in a state, from the cache and without copying them.
func podsOf(ctx context.Context, c client.Reader, pool *skeinv1.SandboxPool, state string, opts ...client.ListOption) ([]corev1.Pod, error) {
	var list corev1.PodList
	opts = append(opts, client.InNamespace(pool.Namespace),
		client.MatchingFields{objects.IndexSandbox: objects.SandboxIndex(pool.Name, state)}, client.UnsafeDisableDeepCopy)
	if err := c.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list the sandbox pods of pool %q: %w", pool.Name, err)
	}
	return list.Items, nil
}

// readyPods returns the ready pods in a random order, so that replicas that claim at the same time rarely pick the
// same pod. Pods of an old template come last: during a rollout they are better than a cold start.
func readyPods(pods []corev1.Pod, hash string) []*corev1.Pod {
	var current, old []*corev1.Pod
	for _, i := range rand.Perm(len(pods)) {
		switch p := &pods[i]; {
		case !sandboxpod.Ready(p):
		case p.Labels[skeinv1.LabelTemplateHash] == hash:
			current = append(current, p)
		default:
			old = append(old, p)
		}
	}
	return append(current, old...)
}

// startingPods returns the pods that will be ready before a new pod would be. Running pods that the kubelet has not
// marked ready yet come first; within each group the oldest comes first.
func startingPods(pods []corev1.Pod, hash string) []*corev1.Pod {
	var starting []*corev1.Pod
	for i := range pods {
		p := &pods[i]
		if !sandboxpod.Ready(p) && !sandboxpod.Over(p) && sandboxpod.TroubleText(p) == "" && p.Labels[skeinv1.LabelTemplateHash] == hash {
			starting = append(starting, p)
		}
	}
	slices.SortStableFunc(starting, func(a, b *corev1.Pod) int {
		if ran := podRuns(a); ran != podRuns(b) {
			if ran {
				return -1
			}
			return 1
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return starting
}

// podRuns reports whether a pod runs and has an address, so that it can be dialled.
func podRuns(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" }

// patchClaim claims a pod for a thread, on condition that the pod has not changed since it was read. It returns nil
// when the pod has changed. The caller has reserved the pod.
func (s *Pods) patchClaim(ctx context.Context, p *corev1.Pod, thread *store.Thread) (*corev1.Pod, error) {
	patch, err := claimPatch(p, thread)
	if err != nil {
		return nil, err
	}
	claimed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err = s.Client.Patch(ctx, claimed, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claim sandbox pod %q: %w", p.Name, err)
	}
	return claimed, nil
}

// claimPatch returns a patch that sets state, thread and owner in one write. The resource version makes it
// conditional.
func claimPatch(p *corev1.Pod, thread *store.Thread) ([]byte, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             p.UID,
		"resourceVersion": p.ResourceVersion,
		"labels":          claimLabels(thread),
		"ownerReferences": []metav1.OwnerReference{objects.ThreadOwner(thread.Name, thread.OwnerUID())},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the claim of pod %q: %w", p.Name, err)
	}
	return data, nil
}

func claimLabels(thread *store.Thread) map[string]string {
	l := map[string]string{skeinv1.LabelSandboxState: sandboxpod.Claimed, skeinv1.LabelThreadID: thread.ID}
	if len(thread.Name) <= validation.LabelValueMaxLength {
		l[skeinv1.LabelThread] = thread.Name
	}
	return l
}

// createCold creates a pod that belongs to the thread from the start. The lock makes checking the
// capacity and creating the pod one step, so that the pool's bound holds.
func (s *Pods) createCold(ctx context.Context, thread *store.Thread, pool *skeinv1.SandboxPool) (*corev1.Pod, error) {
	s.capacity.Lock()
	defer s.capacity.Unlock()
	if s.isClosed() {
		return nil, errPodsClosed
	}
	if err := s.ensureCapacity(ctx, pool); err != nil {
		return nil, err
	}
	pod := sandboxpod.New(pool, s.Settings)
	for k, v := range claimLabels(thread) {
		pod.Labels[k] = v
	}
	pod.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(thread.Name, thread.OwnerUID())}
	if err := s.Client.Create(ctx, pod); err != nil {
		if refused := sandboxpod.RefusalOf(err); refused != nil {
			return nil, noSandbox("no sandbox pod may be started: %s", refused)
		}
		return nil, fmt.Errorf("start a sandbox pod for the thread: %w", err)
	}
	return pod, nil
}

// ensureCapacity keeps a pool within spec.max: when the pool is full it gives up the sandbox that has been idle longest.
func (s *Pods) ensureCapacity(ctx context.Context, pool *skeinv1.SandboxPool) error {
	limit := int(pool.Spec.Max)
	if limit == 0 {
		return nil
	}
	claimed, err := podsOf(ctx, s.Client, pool, sandboxpod.Claimed)
	if err != nil {
		return err
	}
	warm, err := podsOf(ctx, s.Client, pool, sandboxpod.Warm)
	if err != nil {
		return err
	}
	alive := 0
	for _, pods := range [][]corev1.Pod{claimed, warm} {
		for i := range pods {
			if !sandboxpod.Over(&pods[i]) && !s.tracker.isGone(pods[i].UID) {
				alive++
			}
		}
	}
	if alive < limit {
		return nil
	}
	if s.evictIdle(ctx, claimed) {
		return nil
	}
	return noSandbox("SandboxPool %q is full: all of its %d sandboxes are in use; wait for one to end, or raise spec.max", pool.Name, limit)
}

// evictIdle gives up one of the pods that no caller uses, and reports whether it found one.
func (s *Pods) evictIdle(ctx context.Context, pods []corev1.Pod) bool {
	for i := range pods {
		key := client.ObjectKeyFromObject(&pods[i])
		s.mu.Lock()
		c := s.claims[s.byPod[key]]
		unused := c != nil && c.users == 0 && c.pod == key
		s.mu.Unlock()
		if !unused {
			continue
		}
		select {
		case c.turn <- struct{}{}:
		default:
			continue // a caller is about to use it
		}
		s.mu.Lock()
		unused = c.users == 0 && c.pod == key
		uid := c.uid
		s.mu.Unlock()
		unused = unused && s.retire(ctx, c, time.Millisecond) > 0 // another replica may use it
		if unused {
			s.drop(c)
			removing, over := context.WithTimeout(context.WithoutCancel(ctx), retireTimeout-askTimeout)
			s.remove(removing, key, uid)
			over()
			go s.leave(context.WithoutCancel(ctx), key.Namespace, c.threadID)
		}
		<-c.turn
		if unused {
			return true
		}
	}
	return false
}
