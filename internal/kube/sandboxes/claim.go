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
