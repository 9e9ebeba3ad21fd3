package sandboxes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
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
		case !sandboxpod.IsReady(p):
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
		if !sandboxpod.IsReady(p) && !sandboxpod.IsOver(p) && sandboxpod.TroubleText(p) == "" && p.Labels[skeinv1.LabelTemplateHash] == hash {
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

// maxRounds bounds how often each looks for a warm pod when others take all that it saw.
const maxRounds = 3

// each tries the candidates among the pool's warm pods until it gets one. When it loses all of them to others, it
// looks again.
func (a *acquisition) each(ctx context.Context, candidates func([]corev1.Pod) []*corev1.Pod, try func(*corev1.Pod) (bool, error)) error {
	for range maxRounds {
		pods, err := podsOf(ctx, a.port.Client, a.pool, sandboxpod.Warm, quick) // a stale list is harmless, because the patch is conditional
		if err != nil {
			return err
		}
		lost := false
		for _, p := range candidates(pods) {
			if !a.port.tracker.reserve(client.ObjectKeyFromObject(p)) {
				lost = true
				continue
			}
			had, err := try(p)
			if err != nil || !had {
				a.port.tracker.unreserve(client.ObjectKeyFromObject(p))
			}
			if err != nil || had {
				return err
			}
			lost = true
		}
		if !lost {
			return nil
		}
	}
	return nil
}

// claimWarm claims a ready pod for the thread. It dials the pod while the API server handles the claim, because these
// two take most of the time until the first result.
func (a *acquisition) claimWarm(ctx context.Context) (pod *corev1.Pod, conn sandbox.Sandbox, err error) {
	hash := sandboxpod.TemplateHash(a.pool, a.port.Settings)
	ready := func(pods []corev1.Pod) []*corev1.Pod { return readyPods(pods, hash) }
	var failed error // the error of the dial
	err = a.each(ctx, ready, func(p *corev1.Pod) (bool, error) {
		var err error
		pod, conn, failed, err = a.claimAndDial(ctx, p)
		return pod != nil, err
	})
	if err != nil || pod == nil {
		return nil, nil, err
	}
	if failed == nil {
		observeAcquired(foundWarm, a.began)
	}
	return pod, conn, failed
}

// claimAndDial claims and dials a pod at the same time. It returns no pod when the claim was lost.
func (a *acquisition) claimAndDial(ctx context.Context, p *corev1.Pod) (pod *corev1.Pod, conn sandbox.Sandbox, failed, err error) {
	dialCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		conn, failed = a.dial(dialCtx, p, foundWarm, 0)
	}()
	pod, err = a.port.patchClaim(ctx, p, a.thread)
	if err != nil || pod == nil {
		cancel()
	}
	<-dialled
	if pod == nil && conn != nil {
		_ = conn.Close() // nothing ran in it, so any thread can still claim it
		conn = nil
	}
	return pod, conn, failed, err
}

// claimStarting claims a pod that will be ready before a new one would be.
func (a *acquisition) claimStarting(ctx context.Context) (pod *corev1.Pod, err error) {
	hash := sandboxpod.TemplateHash(a.pool, a.port.Settings)
	starting := func(pods []corev1.Pod) []*corev1.Pod { return startingPods(pods, hash) }
	err = a.each(ctx, starting, func(p *corev1.Pod) (had bool, err error) {
		pod, err = a.port.patchClaim(ctx, p, a.thread)
		return pod != nil, err
	})
	return pod, err
}

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
		"ownerReferences": []metav1.OwnerReference{objects.SandboxOwner(thread)},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the claim of pod %q: %w", p.Name, err)
	}
	return data, nil
}

func claimLabels(thread *store.Thread) map[string]string {
	l := map[string]string{skeinv1.LabelSandboxState: sandboxpod.Claimed, skeinv1.LabelThreadID: thread.ID}
	if !thread.Threadless && len(thread.Name) <= validation.LabelValueMaxLength {
		l[skeinv1.LabelThread] = thread.Name
	}
	return l
}
