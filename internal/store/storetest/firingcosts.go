package storetest

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeFiringCosts(e *env) {
	const minute = 60_000_000
	begin := func(ctx context.Context, due int64) store.FiringKey {
		GinkgoHelper()
		e.fires(ctx, due, func(f *store.Firing) { f.Namespace, f.Name, f.Status = "ns", "report", store.FiringRunning })
		return firingKey(due)
	}
	made := 0
	thread := func(ctx context.Context, t store.Thread) string {
		GinkgoHelper()
		made++
		t.ID, t.Agent = fmt.Sprintf("00000000-0000-4000-9000-%012d", made), "helper"
		_, created, err := e.store.CreateThread(ctx, t)
		Expect(err).NotTo(HaveOccurred())
		Expect(created).To(BeTrue())
		return t.ID
	}
	spend := func(ctx context.Context, id, run string, status store.RunStatus, cost float64) {
		GinkgoHelper()
		e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: run, Agent: "helper", Status: status, Usage: json.RawMessage(fmt.Sprintf(`{"cost":%v}`, cost))}})
	}
	cost := func(ctx context.Context) float64 {
		GinkgoHelper()
		sum, err := e.store.FiringCost(ctx, "e", 0, 10*minute)
		Expect(err).NotTo(HaveOccurred())
		return sum
	}

	Describe("firings that have Threads", Label("EFF-08"), func() {
		BeforeEach(func() { made = 0 })

		It("cost what their Threads have cost so far, with subagents and runs under way, however they end", func(ctx SpecContext) {
			begin(ctx, 2*minute)
			begin(ctx, 2*minute+1)
			begin(ctx, 3*minute)
			whole := thread(ctx, store.Thread{Namespace: "ns", Name: "report-2"})
			Expect(cost(ctx)).To(BeZero())
			spend(ctx, whole, "r1", store.RunSucceeded, 0.5)
			spend(ctx, whole, "r2", store.RunRunning, 1)
			child := thread(ctx, store.Thread{Namespace: "ns", Name: "helper", ParentID: whole})
			spend(ctx, child, "r3", store.RunWaiting, 2)
			spend(ctx, thread(ctx, store.Thread{Namespace: "ns", Name: fmt.Sprint("report-", 2*minute+1)}), "r4", store.RunRunning, 4)
			spend(ctx, thread(ctx, store.Thread{Namespace: "other", Name: "report-2"}), "r5", store.RunRunning, 100)
			spend(ctx, thread(ctx, store.Thread{Namespace: "ns", Name: "report-4"}), "r6", store.RunRunning, 100)
			Expect(cost(ctx)).To(Equal(7.5))

			Expect(e.store.CancelFirings(ctx, "by hand", firingKey(2*minute))).To(Equal(1))
			Expect(e.firing(ctx, firingKey(2*minute)).Cost).To(Equal(3.5))
			spend(ctx, whole, "r2", store.RunSucceeded, 50)
			Expect(cost(ctx)).To(Equal(7.5), "it has ended")
			Expect(e.store.EndRunning(ctx, store.FiringEnd{Key: firingKey(2*minute + 1), Status: store.FiringFailed})).To(Succeed())
			Expect(e.firing(ctx, firingKey(2*minute+1)).Cost).To(Equal(4.0))
			Expect(e.store.CancelFirings(ctx, "by hand", firingKey(3*minute))).To(Equal(1))
			Expect(e.firing(ctx, firingKey(3*minute)).Cost).To(BeZero(), "it had no Thread yet")
			Expect(cost(ctx)).To(Equal(7.5))
		})

		It("cost that when a later firing replaces them, too", func(ctx SpecContext) {
			was := store.EffectSchedule{EffectID: "e", Namespace: "ns", Name: "report", Cursor: 1}
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: was})).To(Succeed())
			first := begin(ctx, minute)
			spend(ctx, thread(ctx, store.Thread{Namespace: "ns", Name: "report-1"}), "r1", store.RunRunning, 0.75)
			next := was
			next.Cursor = 2
			Expect(e.store.RecordDue(ctx, store.DueRecord{Schedule: next, Was: &was, Cancel: []store.FiringKey{first},
				Firings: []store.Firing{{EffectID: "e", Due: 2 * minute, Namespace: "ns", Name: "report", Status: store.FiringRunning}}})).To(Succeed())
			Expect(e.firing(ctx, first)).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Cost", 0.75))))
			Expect(cost(ctx)).To(Equal(0.75))
		})

		It("do not cost what another object of their Thread's name left", func(ctx SpecContext) {
			begin(ctx, minute)
			left := thread(ctx, store.Thread{Namespace: "ns", Name: "report-1"})
			spend(ctx, left, "r1", store.RunSucceeded, 8)
			e.apply(ctx, left, &store.Retain{})
			Expect(cost(ctx)).To(BeZero())
		})
	})
}
