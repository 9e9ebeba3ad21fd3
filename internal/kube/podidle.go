package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// defaultIdleTimeout is that of a SandboxPool that says nothing.
const defaultIdleTimeout = 5 * time.Minute

const (
	// askTimeout bounds the question to a sandbox whether it idles. One that does not answer is of no use to anybody.
	askTimeout = 5 * time.Second
	// retireHold is for how long a sandbox begins nothing once it has said that it idles: another replica of the manager
	// must not begin what the deletion would end. After that it is as good as before, should this process have died.
	retireHold = 30 * time.Second
	// retireTimeout bounds question and deletion together: it is over well before the sandbox takes work again.
	retireTimeout = retireHold - 5*time.Second
)

// Idler is a sandbox that says for how long nothing has run in it, 0 while something runs. An answer of atLeast or
// more ends its intake for the time of hold, as one step; a sandbox of an older version answers only.
type Idler interface {
	Retire(ctx context.Context, atLeast, hold time.Duration) (time.Duration, error)
}

func idleTimeout(pool *skeinv1.SandboxPool) time.Duration {
	if t := pool.Spec.IdleTimeout; t != nil {
		return t.Duration
	}
	return defaultIdleTimeout
}

// startIdle begins the time after which an unused pod is given up.
func (s *PodSandboxes) startIdle(c *claim) { s.startIdleFor(c, c.idleTimeout) }

func (s *PodSandboxes) startIdleFor(c *claim, d time.Duration) {
	if c.pod.Name == "" || s.claims[c.threadID] != c {
		return
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	c.idle = s.Clock.AfterFunc(d, func() { go s.reap(c) })
}

// reap gives up a pod that has idled for its time, unless another replica of the manager uses it.
func (s *PodSandboxes) reap(c *claim) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	s.mu.Lock()
	if c.users > 0 || s.claims[c.threadID] != c {
		s.mu.Unlock()
		return
	}
	pod, uid, timeout := c.pod, c.uid, c.idleTimeout
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), retireTimeout)
	defer cancel()
	if rest := timeout - s.retire(ctx, c, timeout); rest > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.startIdleFor(c, rest)
		return
	}
	s.drop(c)
	s.remove(ctx, pod, uid)
	go s.leave(context.WithoutCancel(ctx), pod.Namespace, c.threadID)
}

// retire asks the claim's sandbox for how long nothing has run in it; with enough, it begins nothing more, and must be
// deleted within retireTimeout. One that cannot say, because it is gone or cannot be reached, has idled long enough, but
// not while it may yet start: whoever it was made for comes back for it, or waits for it in another replica. One whose
// asker gave up may be in use.
func (s *PodSandboxes) retire(asker context.Context, c *claim, enough time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(asker, askTimeout)
	defer cancel()
	unknown := func() time.Duration {
		if asker.Err() != nil {
			return 0
		}
		return enough
	}
	s.mu.Lock()
	conn := c.conn
	s.mu.Unlock()
	if conn == nil { // it was taken over, and not used since
		var err error
		var rest time.Duration
		if conn, rest, err = s.dialAgain(ctx, c); err != nil {
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
		s.Logger.V(1).Info("a sandbox does not say whether it is in use", "thread", c.threadID, "error", err.Error())
		return unknown()
	}
	return idle
}

// dialAgain connects to the pod of a claim that has no connection. With an error it tells for how long yet the pod may
// be starting.
func (s *PodSandboxes) dialAgain(ctx context.Context, c *claim) (conn sandbox.Sandbox, rest time.Duration, err error) {
	s.mu.Lock()
	key := c.pod
	s.mu.Unlock()
	var pod corev1.Pod
	if err := s.Client.Get(ctx, key, &pod, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	conn, err = s.Dial(ctx, Endpoint{
		Address:    sandboxAddress(&pod),
		ServerName: pki.ServerName(pod.Labels[skeinv1.LabelPool], pod.Namespace),
		ThreadID:   c.threadID,
	})
	return conn, s.mayStart(&pod), err
}

// mayStart gives for how long yet a pod that does not answer may be starting.
func (s *PodSandboxes) mayStart(p *corev1.Pod) time.Duration {
	age := s.Clock.Since(p.CreationTimestamp.Time)
	if PodReady(p) || PodOver(p) || TroubleOf(p).Final || age.Abs() >= s.StartTimeout { // a clock may be behind
		return 0
	}
	return min(s.StartTimeout-age, s.StartTimeout)
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
	if s.claims[id] != nil || s.gone[p.UID] {
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

// leave takes over what a claim that is dropped leaves behind: a pod may be the thread's although the claimer gave up
// before it heard so, or could not be deleted when the thread had another one already, and there may be no further event
// of it that would make it known.
func (s *PodSandboxes) leave(ctx context.Context, namespace, threadID string) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	var list corev1.PodList
	err := s.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{IndexSandboxThread: threadID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		s.Logger.Error(err, "cannot look for the sandbox pods of a thread", "namespace", namespace, "thread", threadID)
		return
	}
	for i := range list.Items {
		if !PodOver(&list.Items[i]) {
			s.adopt(&list.Items[i])
		}
	}
}

// keep takes over a pod that could not be deleted.
func (s *PodSandboxes) keep(ctx context.Context, key client.ObjectKey) {
	ctx, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	var p corev1.Pod
	if err := s.Client.Get(ctx, key, &p, client.UnsafeDisableDeepCopy); err == nil && !PodOver(&p) {
		s.adopt(&p)
	}
}
