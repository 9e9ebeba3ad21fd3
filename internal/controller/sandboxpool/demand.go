package sandboxpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// How the number of warm sandboxes follows demand (docs/adr/0016-warm-buffer.md).
const (
	// demandWindow is the period whose claims the warm pods must cover. A new pod has started by then, even on a busy
	// node.
	demandWindow = 30 * time.Second
	// demandMemory is how long a busy period is remembered, and so how slowly the number of warm pods shrinks.
	demandMemory = 5 * time.Minute
	// demandGrain is the resolution of the times of claims. It bounds what is remembered.
	demandGrain = 5 * time.Second
)

// demand is what is remembered about a pool's claims.
type demand struct {
	counted map[types.UID]bool // the claimed pods that were counted and still exist; nil before the first reconcile
	claims  []claims           // oldest first, none older than demandMemory
}

// claims is the number of claims within one grain of time.
type claims struct {
	at time.Time
	n  int
}

// observe counts the claims since the last call. Claims before the first call do not count, because their time is
// unknown.
func (d *demand) observe(taken []*corev1.Pod, at time.Time) {
	first := d.counted == nil
	now := make(map[types.UID]bool, len(taken))
	fresh := 0
	for _, p := range taken {
		now[p.UID] = true
		if !first && !d.counted[p.UID] {
			fresh++
		}
	}
	d.counted = now
	for len(d.claims) > 0 && at.Sub(d.claims[0].at) >= demandMemory {
		d.claims = d.claims[1:]
	}
	if fresh == 0 {
		return
	}
	if last := len(d.claims) - 1; last >= 0 && at.Sub(d.claims[last].at) < demandGrain {
		d.claims[last].n += fresh
		return
	}
	d.claims = append(d.claims, claims{at, fresh})
}

// peak returns the highest number of remembered claims within any demandWindow.
func (d *demand) peak() int {
	most := 0
	for i, first := range d.claims {
		sum := 0
		for _, c := range d.claims[i:] {
			if c.at.Sub(first.at) < demandWindow {
				sum += c.n
			}
		}
		most = max(most, sum)
	}
	return most
}

// desiredWarm returns how many sandboxes should be warm: as many as the busiest window had claims, within the pool's
// bounds.
func (r *Reconciler) desiredWarm(s *scope, taken []*corev1.Pod) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memoryOf(s.req)
	m.demand.observe(taken, s.at)
	want := warmBetween(&s.object.Spec, m.demand.peak())
	if want > int(s.object.Spec.Warm) { // check again when the oldest claim is forgotten, because the number may shrink then
		s.look(demandMemory - s.at.Sub(m.demand.claims[0].at))
	}
	return want
}

// warmBetween limits a number of warm sandboxes to the pool's bounds.
func warmBetween(pool *skeinv1.SandboxPoolSpec, n int) int {
	least := int(pool.Warm)
	if pool.MaxWarm == nil {
		return least
	}
	return max(least, min(n, int(*pool.MaxWarm)))
}
