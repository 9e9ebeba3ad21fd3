package sandboxpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

const (
	backoffFirst = time.Second
	backoffMax   = 5 * time.Minute
)

// memory is what is remembered about a pool between reconciles. A new leader starts without it.
type memory struct {
	failure *failure // nil while pods start
	demand  demand
}

// failure says that pods of a pool end or are refused.
type failure struct {
	count   int
	at      time.Time // the time of the last one
	until   time.Time // no pod is created before
	trouble sandboxpod.Trouble
}

// memoryOf returns what is remembered about a pool. mu is held.
func (r *Reconciler) memoryOf(req ctrl.Request) *memory {
	m := r.memories[req]
	if m == nil {
		m = &memory{}
		r.memories[req] = m
	}
	return m
}

func (r *Reconciler) forget(req ctrl.Request) {
	r.statusLimit.Forget(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, req)
}

// note counts a failure, and delays the next pod longer each time.
func (r *Reconciler) note(s *scope, t sandboxpod.Trouble) failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memoryOf(s.req)
	if m.failure == nil {
		m.failure = &failure{}
	}
	f := m.failure
	f.count++
	f.trouble, f.at = t, s.at
	f.until = s.at.Add(min(backoffFirst<<min(f.count-1, 20), backoffMax))
	s.trouble = t
	return *f
}

// heal forgets the failure once a pod that was created after it is ready, or no pod is missing.
func (r *Reconciler) heal(s *scope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memoryOf(s.req)
	if m.failure == nil || s.at.Before(m.failure.until) {
		return
	}
	if len(s.pods.ready) >= s.want || madeSince(s.pods.ready, m.failure.at) {
		m.failure = nil
	}
}

// madeSince reports whether one of the pods is younger than t. Pods record their creation in whole seconds.
func madeSince(pods []*corev1.Pod, t time.Time) bool {
	for _, p := range pods {
		if p.CreationTimestamp.After(t) {
			return true
		}
	}
	return false
}

// failureOf returns the failure of the pool's pods, or nil.
func (r *Reconciler) failureOf(req ctrl.Request) *failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.memoryOf(req).failure; f != nil {
		c := *f
		return &c
	}
	return nil
}
