package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/test/harness"
)

// moved is a manager whose clock the spec moves while it does not run, and a server that its firings call.
type moved struct {
	*harness.Manager
	ns, file string

	mu      sync.Mutex
	ahead   time.Duration          // of the manager's clock
	arrived map[string][]time.Time // requests by idempotency key, each with the time on the manager's clock
}

// restart ends the manager, sets its clock, and starts it again.
func (m *moved) restart(ctx context.Context, ahead time.Duration) {
	GinkgoHelper()
	m.Stop()
	Expect(os.WriteFile(m.file, []byte(ahead.String()), 0o600)).To(Succeed())
	m.mu.Lock()
	m.ahead = ahead
	m.mu.Unlock()
	Expect(m.Start(ctx)).To(Succeed())
	served(ctx)
}

func (m *moved) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.ahead)
}

// calls declares a ScheduledEffect that calls the server.
func (m *moved) calls(ctx context.Context, name string, spec skeinv1.ScheduledEffectSpec) *skeinv1.ScheduledEffect {
	GinkgoHelper()
	spec.CallTool = &skeinv1.EffectToolCall{Name: "count"}
	spec.SuccessfulHistoryLimit, spec.FailedHistoryLimit = ptr.To(int32(kept)), ptr.To(int32(kept))
	spec.TTLSecondsAfterFinished = ptr.To(int32(24 * 3600))
	o := scheduled(m.ns, name, spec)
	create(ctx, o)
	return o
}

func (m *moved) history(ctx context.Context, g Gomega, o *skeinv1.ScheduledEffect) *runtimev1.FiringList {
	GinkgoHelper()
	list, err := api().Firings(ctx, m.ns, o.Name, runtimeclient.FiringPage{Limit: kept})
	g.Expect(err).NotTo(HaveOccurred())
	return list
}

// fires waits until so many firings of a ScheduledEffect have ended, and no other is under way.
func (m *moved) fires(ctx context.Context, o *skeinv1.ScheduledEffect, atLeast int) (dues []int64) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		list := m.history(ctx, g, o)
		g.Expect(len(list.Firings)).To(BeNumerically(">=", atLeast), o.Name)
		dues = nil
		for _, f := range list.Firings {
			g.Expect(f.Status).To(Equal("succeeded"), "%s: %+v", o.Name, f)
			dues = append(dues, f.Due)
		}
	}).Should(Succeed())
	return dues
}

// check expects that no firing is early by the manager's clock, and that each called the server under its own key.
func (m *moved) check(ctx context.Context, o *skeinv1.ScheduledEffect) *runtimev1.FiringList {
	GinkgoHelper()
	list := m.history(ctx, Default, o)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range list.Firings {
		Expect([]int64{f.FiredAt, f.StartedAt}).To(HaveEach(BeNumerically(">=", f.Due)), "%s: %+v is early", o.Name, f)
		key := tool.IdempotencyKey(string(o.UID), fmt.Sprintf("effect:%s:%d", o.UID, f.Due))
		Expect(m.arrived[key]).NotTo(BeEmpty(), "%s: %+v", o.Name, f)
		Expect(m.arrived[key]).To(HaveEach(BeTemporally(">=", time.UnixMicro(f.Due))), "%s: %+v ran early", o.Name, f)
		delete(m.arrived, key)
	}
	return list
}

// whole expects that each due time of an interval since the creation of an object either fired or has a record, and not both.
func whole(o *skeinv1.ScheduledEffect, list *runtimev1.FiringList, interval time.Duration) {
	GinkgoHelper()
	times := slices.Clone(list.Skipped)
	for _, f := range list.Firings {
		times = append(times, runtimev1.SkippedFirings{Due: f.Due, Until: f.Due, Count: 1})
	}
	slices.SortFunc(times, func(a, b runtimev1.SkippedFirings) int { return int(a.Due - b.Due) })
	step := interval.Microseconds()
	next := (o.CreationTimestamp.UnixMicro()/step + 1) * step
	for _, t := range times {
		Expect(t.Due).To(Equal(next), "%s: %+v", o.Name, t)
		Expect(t.Until-t.Due).To(Equal((t.Count-1)*step), "%s: %+v", o.Name, t)
		next = t.Until + step
	}
}

var _ = Describe("A manager whose clock is moved by an hour between restarts", Serial, outages, Label("EFF-04", "EFF-05", "EFF-07"), func() {
	It("fires nothing twice and nothing early, and catches up with what passed, or records it", func(ctx SpecContext) {
		m := &moved{ns: namespace(ctx), file: filepath.Join(GinkgoT().TempDir(), "clock"), arrived: map[string][]time.Time{}}
		Expect(os.WriteFile(m.file, []byte("0s"), 0o600)).To(Succeed())
		m.Manager = instead(ctx, harness.ManagerOptions{
			Dir: filepath.Join(GinkgoT().TempDir(), "data"), Env: []string{"SKEIN_TEST_CLOCK=" + m.file},
			Args: []string{"--namespaces=" + m.ns, "--tool-private-hosts=127.0.0.1"},
		})
		server := toolServer(func(_ http.ResponseWriter, r *http.Request, _ string) {
			at, key := m.now(), r.Header.Get("Idempotency-Key")
			m.mu.Lock()
			defer m.mu.Unlock()
			m.arrived[key] = append(m.arrived[key], at)
		})
		create(ctx, harness.HTTPTool(m.ns, "count", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, map[string]any{}))
		began := time.Now()
		at := func(d time.Duration) *skeinv1.Timestamp { return ptr.To(skeinv1.NewTimestamp(began.Add(d))) }
		seconds := m.calls(ctx, "seconds", skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 1s"}})
		minutes := m.calls(ctx, "minutes", skeinv1.ScheduledEffectSpec{
			Schedules: []string{"@every 10m"}, CatchUp: &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Window: &metav1.Duration{Duration: 3 * time.Hour}}})
		soon := m.calls(ctx, "soon", skeinv1.ScheduledEffectSpec{At: at(30 * time.Minute)})
		tooLate := m.calls(ctx, "too-late", skeinv1.ScheduledEffectSpec{At: at(30 * time.Minute), StartingDeadlineSeconds: ptr.To(int64(60))})
		later := m.calls(ctx, "later", skeinv1.ScheduledEffectSpec{At: at(2 * time.Hour)})
		before := m.fires(ctx, seconds, 2)

		By("setting it forward")
		m.restart(ctx, time.Hour)
		forward := m.fires(ctx, seconds, len(before)+3)
		Expect(forward[0] - before[0]).To(BeNumerically(">", 50*time.Minute.Microseconds()))
		Expect(len(m.fires(ctx, minutes, 6))).To(BeNumerically("<=", 7))
		Expect(m.fires(ctx, soon, 1)).To(HaveLen(1))
		Eventually(ctx, func(g Gomega) {
			g.Expect(m.history(ctx, g, tooLate).Skipped).To(ConsistOf(And(HaveField("Reason", "Missed"), HaveField("Count", int64(1)))))
		}).Should(Succeed())

		By("setting it back")
		m.restart(ctx, 0)
		had := m.history(ctx, Default, seconds).Firings
		fresh := m.calls(ctx, "fresh", skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 1s"}})
		m.fires(ctx, fresh, 3) // so several seconds have passed
		Expect(m.history(ctx, Default, seconds).Firings).To(HaveLen(len(had)), "they are due again only in an hour")

		By("setting it forward again")
		m.restart(ctx, time.Hour)
		m.fires(ctx, seconds, len(had)+3)
		for _, o := range []*skeinv1.ScheduledEffect{seconds, fresh} {
			suspendNow(ctx, o)
			Eventually(ctx, func(g Gomega) {
				g.Expect(m.history(ctx, g, o).Skipped).To(ContainElement(HaveField("Reason", "Suspended")), o.Name)
			}).Should(Succeed())
			m.fires(ctx, o, 1)
			list := m.check(ctx, o)
			Expect(list.Skipped).To(ContainElement(HaveField("Reason", "Missed")), o.Name)
			whole(o, list, time.Second)
		}
		whole(minutes, m.check(ctx, minutes), 10*time.Minute)
		m.check(ctx, soon)
		Expect(m.arrived).To(BeEmpty(), "requests that no firing made")
		Expect(m.history(ctx, Default, tooLate).Firings).To(BeEmpty())
		Expect(m.history(ctx, Default, later)).To(And(HaveField("Firings", BeEmpty()), HaveField("Skipped", BeEmpty())))
	}, NodeTimeout(8*patience))
})
