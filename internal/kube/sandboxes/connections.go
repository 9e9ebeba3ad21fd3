package sandboxes

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
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// watchPools follows the pools whose pods are connected ahead of time.
func (s *Pods) watchPools(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &skeinv1.SandboxPool{})
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { s.pool(ctx, o, true) },
			UpdateFunc: func(old, o any) { // the pool may have been deleted and created again between two events
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

// pool records that a pool exists or is gone.
func (s *Pods) pool(ctx context.Context, o any, there bool) {
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
	go s.linesOf(ctx, pool) // for pods that were seen before their pool; a separate goroutine, because the informer must not wait for the cache
}

// linesOf connects to the warm pods of a pool.
func (s *Pods) linesOf(ctx context.Context, pool *skeinv1.SandboxPool) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	pods, err := s.pods(ctx, pool, sandboxpod.Warm, quick)
	if err != nil {
		s.Logger.V(1).Info("cannot connect to the pods of a pool ahead of time", "namespace", pool.Namespace, "pool", pool.Name, "error", err.Error())
		return
	}
	for i := range pods {
		s.lining.Lock()
		var now corev1.Pod // read again: an event may have changed it since the list
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(&pods[i]), &now, quick, client.UnsafeDisableDeepCopy); err == nil {
			s.keepLine(&now)
		}
		s.lining.Unlock()
	}
}

// line keeps a connection to a warm pod, and drops the connection to any other pod.
func (s *Pods) line(p *corev1.Pod) {
	if s.Lines == nil || p.Labels[skeinv1.LabelPool] == "" {
		return
	}
	s.lining.Lock()
	defer s.lining.Unlock()
	if p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Warm || !sandboxpod.Ready(p) {
		s.Lines.Drop(string(p.UID))
		return
	}
	s.keepLine(p)
}

// unline drops the connection to a pod that is gone.
func (s *Pods) unline(p *corev1.Pod) {
	if s.Lines != nil {
		s.lining.Lock()
		defer s.lining.Unlock()
		s.Lines.Drop(string(p.UID))
	}
}

// keepLine keeps a connection to a pod that a known pool owns. Anyone who may create pods may copy our labels, and
// the number of connections is limited, so the owner reference decides. lining is held.
func (s *Pods) keepLine(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Warm || !sandboxpod.Ready(p) {
		return
	}
	pool := types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[skeinv1.LabelPool]}
	if s.pools[owner.UID] == pool {
		s.Lines.Keep(string(p.UID), sandboxpod.Address(p), pki.ServerName(pool.Name, pool.Namespace))
	}
}
