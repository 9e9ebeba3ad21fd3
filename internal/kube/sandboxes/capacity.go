package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/store"
)

// poolLocks has a lock for each pool. A pool that is full may take long to give up a sandbox, for which no other one has to wait.
type poolLocks struct {
	mu sync.Mutex
	of map[types.NamespacedName]*poolLock
}

type poolLock struct {
	turn  chan struct{} // holds one entry while the lock is held
	idled chan struct{} // gets an entry when a sandbox of the pool becomes idle in this process
	users int           // who hold it or wait for it; poolLocks.mu guards it
}

// wake tells the holder of a pool's lock that a sandbox is idle. It does nothing where there is no holder.
func (l *poolLocks) wake(pool types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of[pool]; one != nil {
		select {
		case one.idled <- struct{}{}:
		default: // the holder has not looked since the last one
		}
	}
}

// lock waits for the lock of a pool until ctx ends, and calls waits if it does not get it at once. idled has an entry whenever a sandbox of
// the pool has become idle.
func (l *poolLocks) lock(ctx context.Context, pool types.NamespacedName, waits func()) (idled <-chan struct{}, unlock func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[types.NamespacedName]*poolLock{}
	}
	one := l.of[pool]
	if one == nil {
		one = &poolLock{turn: make(chan struct{}, 1), idled: make(chan struct{}, 1)}
		l.of[pool] = one
	}
	one.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.of, pool)
		}
	}
	unlock = func() {
		<-one.turn
		leave()
	}
	select {
	case one.turn <- struct{}{}:
		return one.idled, unlock, nil
	default:
		waits()
	}
	select {
	case one.turn <- struct{}{}:
		return one.idled, unlock, nil
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
}

// createCold creates a pod that belongs to the thread from the start. The caller holds the lock of the pool, which makes
// checking the capacity and creating the pod one step, so that the pool's bound holds. adopted is as for evictIdle.
func (s *Pods) createCold(ctx context.Context, thread *store.Thread, pool *skeinv1.SandboxPool, adopted bool) (*corev1.Pod, error) {
	if s.isClosed() {
		return nil, errPodsClosed
	}
	if err := s.ensureCapacity(ctx, pool, adopted); err != nil {
		return nil, err
	}
	pod := sandboxpod.New(pool, s.Settings)
	for k, v := range claimLabels(thread) {
		pod.Labels[k] = v
	}
	pod.OwnerReferences = []metav1.OwnerReference{objects.SandboxOwner(thread)}
	if err := s.Client.Create(ctx, pod); err != nil {
		if refused := sandboxpod.RefusalOf(err); refused != nil {
			return nil, noSandbox("no sandbox pod may be started: %s", refused)
		}
		return nil, fmt.Errorf("start a sandbox pod for the thread: %w", err)
	}
	return pod, nil
}

// errPoolFull means that a pool has as many pods as it may have, and that a thread uses each of them.
var errPoolFull = errors.New("all of its sandboxes are in use")

// ensureCapacity keeps a pool within spec.max: when the pool is full, it gives up an idle sandbox. It returns errPoolFull
// when there is none.
func (s *Pods) ensureCapacity(ctx context.Context, pool *skeinv1.SandboxPool, adopted bool) error {
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
			if !sandboxpod.IsOver(&pods[i]) && !s.tracker.isGone(pods[i].UID) {
				alive++
			}
		}
	}
	if alive < limit {
		return nil
	}
	if s.evictIdle(ctx, claimed, adopted) {
		return nil
	}
	return errPoolFull
}

// evictIdle gives up one of the pods that no caller uses, and reports whether it found one. With adopted it also asks those
// that this process does not use but another replica may. Each of them costs a connection.
func (s *Pods) evictIdle(ctx context.Context, pods []corev1.Pod, adopted bool) bool {
	for i := range pods {
		key := client.ObjectKeyFromObject(&pods[i])
		s.mu.Lock()
		h := s.held[s.byPod[key]]
		unused := h != nil && h.users == 0 && h.pod == key && (adopted || h.conn != nil)
		s.mu.Unlock()
		if !unused {
			continue
		}
		select {
		case h.turn <- struct{}{}:
		default:
			continue // a caller is about to use it
		}
		s.mu.Lock()
		unused = h.users == 0 && h.pod == key
		uid := h.uid
		s.mu.Unlock()
		unused = unused && s.retire(ctx, h, time.Millisecond) > 0 // another replica may use it
		if unused {
			s.drop(h)
			removing, over := context.WithTimeout(context.WithoutCancel(ctx), retireTimeout-askTimeout)
			s.remove(removing, key, uid)
			over()
			go s.leave(context.WithoutCancel(ctx), key.Namespace, h.threadID)
		}
		<-h.turn
		if unused {
			return true
		}
	}
	return false
}
