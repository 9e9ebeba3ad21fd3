package sandboxpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// How the buffer of warm sandboxes follows demand (docs/adr/0016-warm-buffer.md).
const (
	// demandWindow is the time whose claims the buffer is to cover: a pod has started by then, on a busy node too.
	demandWindow = 30 * time.Second
	// demandMemory is how long a busy time is remembered, and so how slowly the buffer shrinks.
	demandMemory = 5 * time.Minute
	// demandGrain is how finely claims are told apart in time, which bounds what is remembered.
	demandGrain = 5 * time.Second
)

// demand is what is remembered of a pool's claims.
type demand struct {
	counted map[types.UID]bool // claimed pods that were counted, of those that there are; nil before the first look
	claims  []claims           // oldest first, none older than demandMemory
}

// claims within one grain of time.
type claims struct {
	at time.Time
	n  int
}

// observe counts the claims since the last look. Those before the first look count for nothing: when they were is not known.
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

// peak is the most claims within demandWindow, of those that are remembered.
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

// desired is how many sandboxes are to be warm: as many as the busiest window had claims, between the pool's bounds.
func (r *Reconciler) desired(s *scope, taken []*corev1.Pod) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memoryOf(s.req)
	m.demand.observe(taken, s.at)
	want := warmBetween(&s.object.Spec, m.demand.peak())
	if want > int(s.object.Spec.Warm) { // the buffer may shrink when the oldest of the claims is forgotten
		s.look(demandMemory - s.at.Sub(m.demand.claims[0].at))
	}
	return want
}

// warmBetween keeps a number of warm sandboxes within what the pool says.
func warmBetween(pool *skeinv1.SandboxPoolSpec, n int) int {
	least := int(pool.Warm)
	if pool.MaxWarm == nil {
		return least
	}
	return max(least, min(n, int(*pool.MaxWarm)))
}
