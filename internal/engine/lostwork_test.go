package engine_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/modellimit"
	"github.com/skein-dev/skein/internal/store"
)

// In these specs the search for lost work comes after an hour, so that it mends nothing.
var _ = Describe("Work that something else comes between is not lost", Label("RUN-02", "THR-12"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })
	rarely := func(o *engine.Options) { o.SweepInterval = hour }

	It("when the agent was missing for a moment, and nothing tells that it is back", func(ctx SpecContext) {
		asked := &askedDefinitions{Definitions: w.Definitions}
		start(w, rarely, func(o *engine.Options) { o.Definitions = asked })
		id := makeThread(ctx, w, "late")
		send(ctx, w, id, "hello")
		Eventually(asked.times.Load).WithContext(ctx).Should(BeNumerically(">", 0))
		w.Definitions.Put("late", enginetest.Script(enginetest.Say("here")))
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("when a thread that waits for a quota gets what needs no room in it", Label("K8S-11"), func(ctx SpecContext) {
		quotas := &limited{}
		quotas.set(store.QuotaRunningThreads, 0)
		w.Store.LimitNamespaces(quotas.of)
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("here")))
		start(w, rarely, func(o *engine.Options) { o.Quotas = quotas.of })
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "hello")
		Eventually(func() string { t, _ := w.Store.Thread(ctx, id); return t.Waits }).WithContext(ctx).ShouldNot(BeEmpty())
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxStop, Payload: enginetest.JSON(store.StopRequest{Calls: []string{"x"}})}})).To(Succeed())
		Eventually(w.Store.Inbox).WithArguments(ctx, id).Should(HaveExactElements(HaveField("Kind", store.InboxMessage)), "the stop is carried out, the message waits")
	})

	It("when the run before it was stopped while that waited for its model", Label("RUN-04"), func(ctx SpecContext) {
		m := &narrow{limiter: modellimit.New(w.Store, clock.RealClock{}).WithMaxWaiting(1), asked: make(chan struct{}, 10), open: make(chan struct{})}
		w.Models = m
		w.Definitions.Put("narrow", func(a *definition.Agent) {
			a.A.Model.Name, a.A.Model.Spec.Limits = "narrow", &skeinv1.ModelLimits{MaxConcurrent: 1}
		})
		e, _ := start(w, rarely, func(o *engine.Options) { o.Workers = 4 })
		var ids []string
		for range 4 {
			id := makeThread(ctx, w, "narrow")
			send(ctx, w, id, "wait")
			ids = append(ids, id)
			Eventually(lastRunOr).WithArguments(ctx, w, id).WithContext(ctx).Should(HaveField("Status", store.RunRunning))
		}
		last := ids[3]
		Eventually(func() int { running, _ := e.Load(); return running }).WithContext(ctx).Should(Equal(2), "the others wait for the model without a worker")
		Expect(e.Stop(ctx, last, "")).To(Succeed())
		send(ctx, w, last, "next")
		Eventually(w.Runs).WithArguments(ctx, last).Should(HaveLen(2), "the next message has its run, although the queue is full")
		close(m.open)
		for _, id := range ids {
			rest(ctx, w, id)
		}
	})

	Context("of a run that waits for a time", func() {
		BeforeEach(func() {
			w.Definitions.Put("sleeper", enginetest.Builtin(skeinv1.BuiltinWait), enginetest.Script(enginetest.Call("wait", map[string]any{"delayMs": 3000}), enginetest.Say("awake")))
		})
		// asleep returns a thread whose run waits.
		asleep := func(ctx context.Context) string {
			GinkgoHelper()
			id := makeThread(ctx, w, "sleeper")
			send(ctx, w, id, "go")
			Eventually(lastRunOr).WithArguments(ctx, w, id).WithContext(ctx).Should(HaveField("Status", store.RunWaiting))
			return id
		}

		It("when its time comes while another holder has the thread", func(ctx SpecContext) {
			a := &asking{Store: w.Store}
			start(w, rarely, func(o *engine.Options) { o.Threads, o.LeaseTTL = w.Over(a), 3*time.Second })
			id := asleep(ctx)
			var fence *store.Fence
			Eventually(func() (err error) {
				fence, err = w.Store.Acquire(ctx, id, "another", time.Minute)
				return err
			}).WithContext(ctx).Should(Succeed())
			Eventually(a.refused.Load).WithContext(ctx).Should(BeNumerically(">", 0))
			Expect(w.Store.Release(ctx, fence)).To(Succeed())
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		})

		It("when a stop that concerns nothing comes before it", Label("RUN-04"), func(ctx SpecContext) {
			_, end := start(w, rarely)
			id := asleep(ctx)
			end()
			Eventually(func() int64 { return time.Now().UnixMicro() - lastRun(ctx, w, id).WakeAt }).WithContext(ctx).Should(BeNumerically(">", 0))
			Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxStop, Payload: enginetest.JSON(store.StopRequest{Calls: []string{"x"}})}})).To(Succeed())
			start(w, rarely)
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		})
	})
})

// askedDefinitions counts how often an agent was looked up.
type askedDefinitions struct {
	*enginetest.Definitions
	times atomic.Int64
}

func (d *askedDefinitions) Agent(ctx context.Context, namespace, name string) (*definition.Agent, error) {
	defer d.times.Add(1) // once the answer is known
	return d.Definitions.Agent(ctx, namespace, name)
}
