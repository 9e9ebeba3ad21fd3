package bench

import (
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/test/harness"
)

// sustained measures how many threads a second get a sandbox when a pool is never given rest, beside how many
// plain pods a second the node brings up, and ends, when 10 at a time are wanted. The two take turns, since a machine
// is busier at one time than at another.
func (b *sandboxBench) sustained(ctx SpecContext, warm, rounds, each int) {
	const workers = 10
	// The pods that waited before it began cost nothing here, and those that follow start while these are deleted. From then on one pod starts and
	// one is deleted for each claim. In the same way the plain pods count from when the first ones are being deleted.
	first := 2 * warm
	var plain, claims paced
	var work, filling time.Duration
	for round := range rounds {
		b.pool(ctx, 0)
		names := make([]string, workers+each)
		for i := range names {
			names[i] = fmt.Sprintf("beside-%d-%d-%d", warm, round, i)
		}
		plain.add(workers, atOnce(workers, names, func(name string) time.Time {
			seen, stop := b.follow(ctx, client.MatchingFields{"metadata.name": name})
			defer stop()
			p := b.createPlain(ctx, name)
			s := <-seen
			Expect(b.cluster.Client.Delete(ctx, p)).To(Succeed())
			return s.runs
		}))
		b.gone(ctx, "beside-")
		filling += timed(func() { b.pool(ctx, int32(warm)) })
		ts := b.threads(ctx, fmt.Sprintf("sustained-%d-%d", warm, round), first+each)
		before := b.managerTime(ctx)
		claims.add(first, atOnce(workers, ts, func(t *harness.Thread) time.Time {
			b.run(ctx, t)
			end := time.Now()
			Expect(t.Delete(ctx)).To(Succeed())
			return end
		}))
		work += b.managerTime(ctx) - before
	}
	figure("plain pods a second, 10 at once (the floor)", "%.2f; each %s", plain.rate(), spread(plain.each))
	figure(fmt.Sprintf("claims a second, pool of %d, 10 at once", warm), "%.2f after the first %d, which is %.2f times the node's own rate of plain pods (goal 1); each %s",
		claims.rate(), first, claims.rate()/plain.rate(), spread(claims.each))
	figure("  the pool was warm", "%s after it had none (mean of %d)", (filling / time.Duration(rounds)).Round(100*time.Millisecond), rounds)
	figure("  processor time of the manager for each", "%s, with those of the first %d, the deletion of its thread and the refill",
		round(work/time.Duration(rounds*(first+each))), first)
	b.pool(ctx, 0)
}

// managerTime is the processor time of the manager until now.
func (b *sandboxBench) managerTime(ctx SpecContext) time.Duration {
	GinkgoHelper()
	return processes()[(&effectBench{cluster: b.cluster}).process(ctx, Default)].used
}

// served is when an item was, and how long it took.
type served struct {
	at   time.Time
	took time.Duration
}

// paced is how work went that several did at once.
type paced struct {
	took time.Duration
	each []time.Duration
}

// add adds what was served, but for the first so many and the time that they took.
func (p *paced) add(without int, all []served) {
	slices.SortFunc(all, func(a, b served) int { return a.at.Compare(b.at) })
	from := all[0].at.Add(-all[0].took)
	if without > 0 {
		from = all[without-1].at
	}
	p.took += all[len(all)-1].at.Sub(from)
	for _, one := range all[without:] {
		p.each = append(p.each, one.took)
	}
}

// rate is how many a second were served.
func (p *paced) rate() float64 { return float64(len(p.each)) / p.took.Seconds() }

// atOnce gives the items to so many workers. do tells when an item was served; the worker is free when it returns.
func atOnce[T any](workers int, items []T, do func(T) time.Time) (all []served) {
	next := make(chan T)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			defer GinkgoRecover()
			for item := range next {
				began := time.Now()
				end := do(item)
				mu.Lock()
				all = append(all, served{at: end, took: end.Sub(began)})
				mu.Unlock()
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	wg.Wait()
	return all
}

// gone waits until no pod is left whose name begins so.
func (b *sandboxBench) gone(ctx SpecContext, prefix string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var l corev1.PodList
		g.Expect(b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns))).To(Succeed())
		for i := range l.Items {
			g.Expect(l.Items[i].Name).NotTo(HavePrefix(prefix))
		}
	}).Should(Succeed())
}
