package sandboxes

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podTracker records what this process knows of pods that the cache does not show yet, and who waits for a change of
// one.
type podTracker struct {
	mu       sync.Mutex
	reserved map[types.NamespacedName]bool // pods that a claim in progress has picked; mu guards all fields
	waiting  map[types.NamespacedName]chan struct{}
	gone     map[types.UID]bool // deleted pods that the cache may still have
}

func newPodTracker() *podTracker {
	return &podTracker{
		reserved: map[types.NamespacedName]bool{},
		waiting:  map[types.NamespacedName]chan struct{}{},
		gone:     map[types.UID]bool{},
	}
}

// reserve picks a pod for one claim, and reports whether no other claim had picked it. The pod stays reserved until
// the cache shows that it is no longer warm.
func (t *podTracker) reserve(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reserved[key] {
		return false
	}
	t.reserved[key] = true
	return true
}

func (t *podTracker) unreserve(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.reserved, key)
}

// signal wakes the callers that wait for a pod.
func (t *podTracker) signal(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ch := t.waiting[key]; ch != nil {
		close(ch)
		delete(t.waiting, key)
	}
}

// await returns a channel that is closed at the next change of a pod.
func (t *podTracker) await(key types.NamespacedName) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[key] == nil {
		t.waiting[key] = make(chan struct{})
	}
	return t.waiting[key]
}

// setGone marks a deleted pod, so that it is not found in a cache that does not know of the deletion yet. When
// another replica deleted the pod, the cache learns of it in time.
func (t *podTracker) setGone(uid types.UID, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone {
		t.gone[uid] = true
	} else {
		delete(t.gone, uid)
	}
}

func (t *podTracker) isGone(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone[uid]
}
