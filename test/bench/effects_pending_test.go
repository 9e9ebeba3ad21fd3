package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// pendingEnv lists how many effects are pending when one is due at a time, such as "10 10000 100000".
const pendingEnv = "SKEIN_BENCH_PENDING"

// Effects that are due one at a time, among pending ones: a cluster without a node, and a manager beside it, whose restart is its own.
var _ = Describe("Pending effects", Ordered, Label("effects"), func() {
	var b *effectBench

	BeforeAll(func(ctx SpecContext) {
		cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "bench-pending", AuditLog: true, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(5*time.Minute))
		Expect(cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: strings.Fields(os.Getenv("SKEIN_BENCH_ARGS"))})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		Expect(m.Start(ctx)).To(Succeed())
		b = &effectBench{cluster: cluster, ns: namespace(ctx, cluster), manager: m}
		b.prepare(ctx)
	}, NodeTimeout(10*time.Minute))

	AfterEach(func() { load() })

	It("are due one at a time", func(ctx SpecContext) {
		for _, n := range pendingCounts() {
			b.pend(ctx, n)
			b.lateness(ctx, 200)
		}
		b.restart(ctx)
	}, SpecTimeout(90*time.Minute))
})

func pendingCounts() (out []int) {
	GinkgoHelper()
	list := os.Getenv(pendingEnv)
	if list == "" {
		list = "10 10000"
	}
	for _, text := range strings.Fields(list) {
		n, err := strconv.Atoi(text)
		Expect(err).NotTo(HaveOccurred(), "%s is a list of numbers", pendingEnv)
		out = append(out, n)
	}
	return out
}

// pend makes so many effects pending in all.
func (b *effectBench) pend(ctx SpecContext, n int) {
	GinkgoHelper()
	due := time.Now().Add(24 * time.Hour)
	took := timed(func() {
		from := b.pending
		b.plant(ctx, n-from, func(i int) *skeinv1.ScheduledEffect {
			return b.effect(fmt.Sprintf("pending-%d", from+i), "start", from+i, due)
		})
		b.pending = n
		b.settled(ctx)
	})
	memory := b.memory(ctx)
	figure(fmt.Sprintf("%d effects pending", n), "planted, and seen by the manager, in %s; manager %.0f MiB, %.0f before any: %.1f KiB each",
		took.Round(100*time.Millisecond), memory, b.base, (memory-b.base)*1024/float64(n))
}

// settled waits until the manager has seen all pending effects: it gets to know of objects in the order of their creation, and only then
// looks at the last one, which is due.
func (b *effectBench) settled(ctx SpecContext) {
	GinkgoHelper()
	b.series++
	n := b.series * 10_000
	create(ctx, b.cluster, b.effect(fmt.Sprintf("last-%d", n), "start", n, time.Now()))
	b.began(ctx, n)
	Eventually(ctx, func() time.Duration { // what is due passes what is pending, which the manager then looks at
		before := timesOf(b.manager.PID())["manager"]
		time.Sleep(time.Second)
		return timesOf(b.manager.PID())["manager"] - before
	}).Should(BeNumerically("<", 100*time.Millisecond))
}

// began returns when the handler of an effect began.
func (b *effectBench) began(ctx SpecContext, n int) (at time.Time) {
	GinkgoHelper()
	t := b.cluster.Thread(b.ns, b.threads[n%len(b.threads)].Name)
	Eventually(ctx, func(g Gomega) {
		v, err := t.Value(ctx, fmt.Sprintf("began-%d", n))
		g.Expect(err).NotTo(HaveOccurred())
		ms, err := strconv.ParseFloat(v, 64)
		g.Expect(err).NotTo(HaveOccurred())
		at = time.UnixMilli(int64(ms))
	}).WithTimeout(10 * time.Minute).Should(Succeed())
	return at
}

// creation returns how long the creation of n effects is likely to take, twice over: it takes longer with many pending ones, and on a busy
// machine. A few that are due much later tell.
func (b *effectBench) creation(ctx SpecContext, n int) time.Duration {
	GinkgoHelper()
	const trial = 16
	took := timed(func() {
		b.createAll(ctx, 8, trial, func(i int) *skeinv1.ScheduledEffect {
			return b.effect(fmt.Sprintf("trial-%d-%d", b.series, i), "start", i, time.Now().Add(24*time.Hour))
		})
	})
	return 2 * took * time.Duration(n) / trial
}

// lateness is from the due time to the first line of the handler, when one effect is due at a time, and where it comes from.
func (b *effectBench) lateness(ctx SpecContext, n int) {
	GinkgoHelper()
	const apart = 100 * time.Millisecond
	b.series++
	first := time.Now().Add(b.creation(ctx, n) + 5*time.Second).Truncate(time.Millisecond)
	due := func(i int) time.Time { return first.Add(time.Duration(i) * apart) }
	number := func(i int) int { return b.series*10_000 + i }
	began := time.Now()
	b.createAll(ctx, 8, n, func(i int) *skeinv1.ScheduledEffect {
		o := b.effect(fmt.Sprintf("single-%d", number(i)), "start", number(i), due(i))
		o.Spec.TTLSecondsAfterFinished = ptr.To(int32(40))
		return o
	})
	if late := time.Since(first); late > 0 {
		figure("  the first was due before the last was created", "by %s: these figures are of creations, too", late.Round(time.Millisecond))
	}
	var floor []time.Duration // other work of the machine makes these late, too
	for i := range n {
		time.Sleep(time.Until(due(i)))
		floor = append(floor, time.Since(due(i)))
	}
	time.Sleep(time.Second)
	before := timesOf(b.process(ctx, Default))
	time.Sleep(5 * time.Second)
	rest := timesOf(b.process(ctx, Default)).since(before, 5)
	var recorded, claimed, late []time.Duration
	for i := range n {
		late = append(late, b.began(ctx, number(i)).Sub(due(i)))
		Eventually(ctx, func(g Gomega) {
			l := b.firings(ctx, g, fmt.Sprintf("single-%d", number(i)))
			g.Expect(l.Firings).To(HaveLen(1))
			recorded = append(recorded, time.UnixMicro(l.Firings[0].FiredAt).Sub(due(i)))
			claimed = append(claimed, time.UnixMicro(l.Firings[0].StartedAt).Sub(due(i)))
		}).Should(Succeed())
	}
	figure(fmt.Sprintf("due → handler's start, %d pending", b.pending), "%s  worst %s (goal p99 25 ms with 10,000, 50 ms with 100,000)", spread(late), round(slices.Max(late)))
	figure("  of it until it is recorded", "%s  worst %s", spread(recorded), round(slices.Max(recorded)))
	figure("  and until it is claimed", "%s  worst %s", spread(claimed), round(slices.Max(claimed)))
	figure("  a timer of the bench at the same times", "%s  worst %s", spread(floor), round(slices.Max(floor)))
	figure("  processor time of a second at rest", "%s", rest)
	b.oneTime(ctx, "single-", n, number, began)
}

// restart is how long it takes until the manager's next process answers, and until an effect that is due then has run.
func (b *effectBench) restart(ctx SpecContext) {
	GinkgoHelper()
	began := time.Now()
	b.manager.Stop()
	ended := time.Now()
	Expect(b.manager.Start(ctx)).To(Succeed())
	ready := time.Since(ended)
	b.series++
	n := b.series * 10_000
	due := time.Now()
	create(ctx, b.cluster, b.effect(fmt.Sprintf("after-%d", n), "start", n, due))
	ran := b.began(ctx, n)
	figure(fmt.Sprintf("restart with %d pending", b.pending), "ended after %s; ready %s later (goal 30 s with 100,000); an effect that was due then ran %s late; %.0f MiB then",
		ended.Sub(began).Round(10*time.Millisecond), ready.Round(10*time.Millisecond), ran.Sub(due).Round(time.Millisecond), b.memory(ctx))
	before := timesOf(b.manager.PID())
	time.Sleep(20 * time.Second)
	figure("  processor time of each pending one in the 20 s after that", "%s", timesOf(b.manager.PID()).since(before, b.pending))
}
