package sandboxes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// Watch makes the port follow the pods of a cache. Call it before the cache starts.
func (s *Pods) Watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch sandbox pods: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.handleChange(o) },
		UpdateFunc: func(_, o any) { s.handleChange(o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				s.tracker.unreserve(client.ObjectKeyFromObject(p))
				s.tracker.setGone(p.UID, false)
				s.warm.drop(p)
				s.dropEnded(client.ObjectKeyFromObject(p))
				s.tracker.signal(client.ObjectKeyFromObject(p))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch sandbox pods: %w", err)
	}
	if s.Connections == nil {
		return nil
	}
	return s.warm.watchPools(ctx, informers)
}

// handleChange handles a pod that the cache has got or that has changed.
func (s *Pods) handleChange(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(p)
	if p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Warm {
		s.tracker.unreserve(key)
	}
	s.warm.update(p)
	if sandboxpod.IsOver(p) {
		s.dropEnded(key)
	} else {
		s.adopt(p)
	}
	s.tracker.signal(key)
}

// dropEnded drops a held pod that has ended, so that the next call gets another pod. Code that runs in the ended
// pod fails through its connection.
func (s *Pods) dropEnded(key types.NamespacedName) {
	s.mu.Lock()
	h := s.held[s.byPod[key]]
	s.mu.Unlock()
	if h != nil {
		go func() { // a separate goroutine, because closing a connection may wait for the network and the informer must not
			h.turn <- struct{}{} // a caller that is connecting continues to another pod with this same record
			defer func() { <-h.turn }()
			s.dropIf(h, func() bool { return h.pod == key })
		}()
	}
}
