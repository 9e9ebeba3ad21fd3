package sandboxes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// defaultIdleTimeout applies to a SandboxPool without spec.idleTimeout.
const defaultIdleTimeout = 5 * time.Minute

const (
	// askTimeout bounds asking a sandbox whether it is idle. A sandbox that does not answer is useless.
	askTimeout = 5 * time.Second
	// retireHold is how long a sandbox refuses new work after it reported that it is idle, so that another replica of
	// the manager starts nothing that the deletion would end. If this process dies meanwhile, the sandbox accepts
	// work again after that time.
	retireHold = 30 * time.Second
	// retireTimeout bounds asking and deleting together, so that both are over well before the sandbox accepts work
	// again.
	retireTimeout = retireHold - 5*time.Second
)

// Idler is a sandbox that returns for how long nothing has run in it, 0 while something runs. When that is atLeast or
// more, it also stops accepting work for the duration hold, in the same step. A sandbox of an older version only
// returns the time.
type Idler interface {
	Retire(ctx context.Context, atLeast, hold time.Duration) (time.Duration, error)
}

func idleTimeout(pool *skeinv1.SandboxPool) time.Duration {
	if t := pool.Spec.IdleTimeout; t != nil {
		return t.Duration
	}
	return defaultIdleTimeout
}

// startIdle starts the timer after which an unused pod is given up. mu is held.
func (s *Pods) startIdle(h *heldPod) { s.startIdleFor(h, h.idleTimeout) }

// startIdleFor starts that timer with the time d. It does nothing for a pod that was dropped. mu is held.
func (s *Pods) startIdleFor(h *heldPod, d time.Duration) {
	if h.pod.Name == "" || s.held[h.threadID] != h {
		return
	}
	if h.idle != nil {
		h.idle.Stop()
	}
	h.idle = s.Clock.AfterFunc(d, func() { go s.reap(h) })
}

// reap gives up a pod that has been idle for its timeout, unless another replica of the manager uses it.
func (s *Pods) reap(h *heldPod) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	s.mu.Lock()
	if h.users > 0 || s.held[h.threadID] != h {
		s.mu.Unlock()
		return
	}
	pod, uid, timeout := h.pod, h.uid, h.idleTimeout
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), retireTimeout)
	defer cancel()
	if rest := timeout - s.retire(ctx, h, timeout); rest > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.startIdleFor(h, rest)
		return
	}
	s.drop(h)
	s.remove(ctx, pod, uid)
	go s.leave(context.WithoutCancel(ctx), pod.Namespace, h.threadID)
}

// retire returns for how long nothing has run in a held pod. When that is enough or more, the sandbox
// accepts no new work and must be deleted within retireTimeout.
//
// A sandbox that cannot answer, because it is gone or unreachable, counts as idle for long enough. The exception is a
// pod that may still be starting, because the caller for which it was created returns to it, or waits for it in
// another replica. When asker has ended, the sandbox may be in use, so retire returns 0.
func (s *Pods) retire(asker context.Context, h *heldPod, enough time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(asker, askTimeout)
	defer cancel()
	unknown := func() time.Duration {
		if asker.Err() != nil {
			return 0
		}
		return enough
	}
	s.mu.Lock()
	conn := h.conn
	s.mu.Unlock()
	if conn == nil { // it was adopted and not used since
		var err error
		var rest time.Duration
		if conn, rest, err = s.dialAgain(ctx, h); err != nil {
			return unknown() - rest
		}
		defer func() { _ = conn.Close() }()
	}
	i, ok := conn.(Idler)
	if !ok {
		return enough
	}
	idle, err := i.Retire(ctx, enough, retireHold)
	if err != nil {
		s.Logger.V(1).Info("cannot find out whether a sandbox is in use", "thread", h.threadID, "error", err.Error())
		return unknown()
	}
	return idle
}

// dialAgain connects to a held pod that has no connection. With an error, rest is how much longer the pod may
// be starting.
func (s *Pods) dialAgain(ctx context.Context, h *heldPod) (conn sandbox.Sandbox, rest time.Duration, err error) {
	s.mu.Lock()
	key := h.pod
	s.mu.Unlock()
	var pod corev1.Pod
	if err := s.Client.Get(ctx, key, &pod, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	conn, err = s.Dial(ctx, Endpoint{
		Address:    sandboxpod.Address(&pod),
		ServerName: pki.ServerName(pod.Labels[skeinv1.LabelPool], pod.Namespace),
		ThreadID:   h.threadID,
	})
	return conn, s.mayStart(&pod), err
}

// mayStart returns how much longer a pod that does not answer may be starting.
func (s *Pods) mayStart(p *corev1.Pod) time.Duration {
	age := s.Clock.Since(p.CreationTimestamp.Time)
	if sandboxpod.IsReady(p) || sandboxpod.IsOver(p) || sandboxpod.TroubleOf(p).Final || age.Abs() >= s.StartTimeout { // Abs, because a clock may be behind
		return 0
	}
	return min(s.StartTimeout-age, s.StartTimeout)
}

// adopt takes over a claimed pod that this process does not know, for example from before a restart, so that the pod
// is given up when it is idle.
func (s *Pods) adopt(p *corev1.Pod) {
	id := p.Labels[skeinv1.LabelThreadID]
	if p.Labels[skeinv1.LabelSandboxState] != sandboxpod.Claimed || id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id] != nil || s.tracker.isGone(p.UID) {
		return
	}
	h := &heldPod{threadID: id, turn: make(chan struct{}, 1), pod: client.ObjectKeyFromObject(p), uid: p.UID, idleTimeout: defaultIdleTimeout}
	s.held[id] = h
	s.byPod[h.pod] = id
	// Read the pool in another goroutine: its cache may still be filling, and the informer must not wait for it.
	go s.idleAfterAdoption(h, client.ObjectKey{Namespace: p.Namespace, Name: p.Labels[skeinv1.LabelPool]})
}

// idleAfterAdoption starts the idle timer of an adopted pod, unless the pod is in use by now.
func (s *Pods) idleAfterAdoption(h *heldPod, pool client.ObjectKey) {
	ctx, cancel := context.WithTimeout(context.Background(), s.StartTimeout)
	defer cancel()
	var o skeinv1.SandboxPool
	err := s.Client.Get(ctx, pool, &o, client.UnsafeDisableDeepCopy)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // without the pool the default applies
		h.idleTimeout = idleTimeout(&o)
	}
	if h.users == 0 {
		s.startIdle(h)
	}
}

// leave adopts the pods of a thread whose record was dropped. A pod may belong to the thread although the claimer gave
// up before it learned that, or although it could not be deleted when the thread already had another pod. There may
// be no further event that would make such a pod known.
func (s *Pods) leave(ctx context.Context, namespace, threadID string) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	var list corev1.PodList
	err := s.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{objects.IndexSandboxThread: threadID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		s.Logger.Error(err, "cannot look for the sandbox pods of a thread", "namespace", namespace, "thread", threadID)
		return
	}
	for i := range list.Items {
		if !sandboxpod.IsOver(&list.Items[i]) {
			s.adopt(&list.Items[i])
		}
	}
}

// keep adopts a pod that could not be deleted.
func (s *Pods) keep(ctx context.Context, key client.ObjectKey) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	var p corev1.Pod
	if err := s.Client.Get(ctx, key, &p, client.UnsafeDisableDeepCopy); err == nil && !sandboxpod.IsOver(&p) {
		s.adopt(&p)
	}
}
