package scheduledeffect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// runsFor makes the run of each Thread cost so much so far. It goes on.
func (w *world) runsFor(ctx context.Context, cost float64) {
	GinkgoHelper()
	var threads skeinv1.ThreadList
	Expect(w.Client.List(ctx, &threads)).To(Succeed())
	for i := range threads.Items {
		t := &threads.Items[i]
		_, _, err := w.Store.CreateThread(ctx, store.Thread{ID: t.ThreadID(), Namespace: t.Namespace, Name: t.Name, Agent: "analyst"})
		Expect(err).NotTo(HaveOccurred())
		run := store.Run{ID: "r", Agent: "analyst", Status: store.RunRunning, Usage: json.RawMessage(fmt.Sprintf(`{"cost":%v}`, cost))}
		Expect(w.Store.Apply(ctx, t.ThreadID(), nil, &store.PutRun{Run: run})).To(Succeed())
	}
}

// noEnds is a store that cannot record the ends of firings while away is true.
type noEnds struct {
	scheduledeffect.Store
	away bool
}

func (n *noEnds) EndRunning(ctx context.Context, end store.FiringEnd) error {
	if n.away {
		return errors.New("not now")
	}
	return n.Store.EndRunning(ctx, end)
}

var _ = Describe("The cost of a day of Threads", Label("EFF-03", "EFF-08"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	limited := func(ctx context.Context) {
		GinkgoHelper()
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Reason", "LimitReached"), HaveField("Detail", "the cost of 2026-03-01 has reached the limit of 1"))))
		Expect(w.s.Status.Phase).To(Equal("LimitReached"))
	}

	It("is that of runs that later firings replaced", func(ctx SpecContext) {
		w.declare(ctx, costs("1"), func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyReplace })
		for range 5 {
			w.pass(ctx, time.Minute)
			w.runsFor(ctx, 0.4)
		}
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule canceled", "2m0s schedule canceled", "3m0s schedule running"}))
		limited(ctx)
	})

	It("is that of runs under way, however it grows", func(ctx SpecContext) {
		w.declare(ctx, costs("1"))
		w.pass(ctx, 2*time.Minute)
		w.runsFor(ctx, 0.5)
		for cost := range 3 {
			w.pass(ctx, time.Minute)
			w.runsFor(ctx, float64(1+cost))
		}
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running", "2m0s schedule running"}))
		limited(ctx)
	})

	It("is that of runs that a person canceled", func(ctx SpecContext) {
		w.declare(ctx, costs("1"))
		w.pass(ctx, time.Minute)
		w.runsFor(ctx, 1)
		Expect(w.Store.CancelFirings(ctx, "canceled by hand", w.firings(ctx)[0].Key())).To(Equal(1))
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule canceled"}))
		limited(ctx)
	})

	It("is that of runs that have ended, also when recording the end failed at first", func(ctx SpecContext) {
		o := w.r.Options
		ends := &noEnds{Store: w.Store, away: true}
		o.Store = ends
		w.r = scheduledeffect.New(o)
		w.declare(ctx, costs("1"), func(s *skeinv1.ScheduledEffect) { s.Spec.MaxFirings = ptr.To[int64](2) })
		w.pass(ctx, time.Minute)
		w.runsFor(ctx, 1.25)
		w.endThreads(ctx)
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError(ContainSubstring("not now")))
		ends.away = false
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringSucceeded), HaveField("Cost", 1.25))))
		w.pass(ctx, time.Minute)
		limited(ctx)
	})

	It("is nothing for a firing whose Thread was not created yet", func(ctx SpecContext) {
		w.declare(ctx, costs("1"), func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadTemplate.Spec.AgentRef.Name = "late" })
		w.pass(ctx, 2*time.Minute)
		Expect(w.fired(ctx)).To(HaveLen(2))
		Expect(w.skipped(ctx)).To(BeEmpty())
	})
})
