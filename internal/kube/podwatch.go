package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Watch makes the port follow the pods of a cache, before the cache starts.
func (s *PodSandboxes) Watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch sandbox pods: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.changed(o) },
		UpdateFunc: func(_, o any) { s.changed(o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				s.unreserve(client.ObjectKeyFromObject(p))
				s.lost(client.ObjectKeyFromObject(p))
				s.signal(client.ObjectKeyFromObject(p))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch sandbox pods: %w", err)
	}
	return nil
}

func (s *PodSandboxes) changed(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(p)
	if p.Labels[skeinv1.LabelSandboxState] != SandboxWarm {
		s.unreserve(key)
	}
	if PodOver(p) {
		s.lost(key)
	} else {
		s.adopt(p)
	}
	s.signal(key)
}

// lost drops the claim of a pod that has ended, so that the next call gets another. What runs in it fails
// by its connection.
func (s *PodSandboxes) lost(key types.NamespacedName) {
	s.mu.Lock()
	c := s.claims[s.byPod[key]]
	s.mu.Unlock()
	if c != nil {
		// Closing a connection may wait for the network; the informer must not.
		go s.dropIf(c, func() bool { return c.pod == key })
	}
}

// adopt takes over a claimed pod that this process does not know, from before a restart, so that it is
// given up when it idles.
func (s *PodSandboxes) adopt(p *corev1.Pod) {
	id := p.Labels[skeinv1.LabelThreadID]
	if p.Labels[skeinv1.LabelSandboxState] != SandboxClaimed || id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[id] != nil {
		return
	}
	c := &claim{threadID: id, turn: make(chan struct{}, 1), pod: client.ObjectKeyFromObject(p), uid: p.UID, idleTimeout: defaultIdleTimeout}
	s.claims[id] = c
	s.byPod[c.pod] = id
	// The pool is read from a cache that may still be filling, and the informer must not wait for it.
	go s.idleAfterAdoption(c, client.ObjectKey{Namespace: p.Namespace, Name: p.Labels[skeinv1.LabelPool]})
}

// idleAfterAdoption starts the idle time of a pod that was taken over, unless it is in use by now.
func (s *PodSandboxes) idleAfterAdoption(c *claim, pool client.ObjectKey) {
	ctx, cancel := context.WithTimeout(context.Background(), s.StartTimeout)
	defer cancel()
	var o skeinv1.SandboxPool
	err := s.Client.Get(ctx, pool, &o, client.UnsafeDisableDeepCopy)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // a pool that is gone leaves the default
		c.idleTimeout = idleTimeout(&o)
	}
	if c.users == 0 {
		s.startIdle(c)
	}
}

// signal wakes whoever waits for a pod.
func (s *PodSandboxes) signal(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waiting[key]; ch != nil {
		close(ch)
		delete(s.waiting, key)
	}
}

// await gives a channel that is closed at the next change of a pod.
func (s *PodSandboxes) await(key types.NamespacedName) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[key] == nil {
		s.waiting[key] = make(chan struct{})
	}
	return s.waiting[key]
}
