package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// watchPools follows the pools whose pods get lines.
func (s *PodSandboxes) watchPools(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &skeinv1.SandboxPool{})
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { s.pool(ctx, o, true) },
			UpdateFunc: func(old, o any) { // made anew between two looks at the cluster
				if was, ok := old.(*skeinv1.SandboxPool); ok && was.UID != o.(*skeinv1.SandboxPool).UID {
					s.pool(ctx, old, false)
					s.pool(ctx, o, true)
				}
			},
			DeleteFunc: func(o any) {
				if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = d.Obj
				}
				s.pool(ctx, o, false)
			},
		})
	}
	if err != nil {
		return fmt.Errorf("watch sandbox pools: %w", err)
	}
	return nil
}

// pool notes that a pool is there, or no more.
func (s *PodSandboxes) pool(ctx context.Context, o any, there bool) {
	pool, ok := o.(*skeinv1.SandboxPool)
	if !ok {
		return
	}
	s.lining.Lock()
	defer s.lining.Unlock()
	if !there {
		delete(s.pools, pool.UID)
		return
	}
	s.pools[pool.UID] = client.ObjectKeyFromObject(pool)
	go s.linesOf(ctx, pool) // of pods that were seen before their pool; the informer must not wait for the cache
}

// linesOf makes the lines to a pool's pods that wait.
func (s *PodSandboxes) linesOf(ctx context.Context, pool *skeinv1.SandboxPool) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	pods, err := s.pods(ctx, pool, SandboxWarm, quick)
	if err != nil {
		s.Logger.V(1).Info("no connections ahead of time to the pods of a pool", "namespace", pool.Namespace, "pool", pool.Name, "error", err.Error())
		return
	}
	for i := range pods {
		s.lining.Lock()
		var now corev1.Pod // whose event may have come since
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(&pods[i]), &now, quick, client.UnsafeDisableDeepCopy); err == nil {
			s.keepLine(&now)
		}
		s.lining.Unlock()
	}
}

// line keeps a connection to a pod that waits for its thread, and to no other.
func (s *PodSandboxes) line(p *corev1.Pod) {
	if s.Lines == nil || p.Labels[skeinv1.LabelPool] == "" {
		return
	}
	s.lining.Lock()
	defer s.lining.Unlock()
	if p.Labels[skeinv1.LabelSandboxState] != SandboxWarm || !PodReady(p) {
		s.Lines.Drop(string(p.UID))
		return
	}
	s.keepLine(p)
}

// unline lets the connection to a pod go that is no more.
func (s *PodSandboxes) unline(p *corev1.Pod) {
	if s.Lines != nil {
		s.lining.Lock()
		defer s.lining.Unlock()
		s.Lines.Drop(string(p.UID))
	}
}

// keepLine keeps one to a pod that is a pool's. Whoever may make pods may give them our labels: the places are few, and
// not for those. lining is held.
func (s *PodSandboxes) keepLine(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || p.Labels[skeinv1.LabelSandboxState] != SandboxWarm || !PodReady(p) {
		return
	}
	pool := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[skeinv1.LabelPool]}
	if s.pools[owner.UID] == pool {
		s.Lines.Keep(string(p.UID), sandboxAddress(p), pki.ServerName(pool.Name, pool.Namespace))
	}
}
