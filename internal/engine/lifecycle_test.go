package engine_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Stopping and terminating", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	// hang is an agent whose model does not answer by itself.
	hang := func() {
		w.Definitions.Put("hang", enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "quick"}, Content: "quick", Times: ptr.To[int32](0)},
			skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
	}
	running := func(ctx context.Context, id string) {
		GinkgoHelper()
		Eventually(func() store.RunStatus {
			r, err := w.Store.Run(ctx, id, "")
			if err != nil {
				return ""
			}
			return r.Status
		}).Should(Equal(store.RunRunning))
	}

	It("stops a run by a user's wish and takes the next message", Label("RUN-04"), func(ctx SpecContext) {
		hang()
		e, _ := start(w)
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		running(ctx, id)
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonStoppedByUser), HaveField("Message", "enough")))
		send(ctx, w, id, "quick")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: (stopped by user)", "user: quick", "assistant: quick"}))
	})

	It("terminates all descendants but those whose data is retained, also the ones that an earlier attempt missed", Label("THR-05", "SUB-08"), func(ctx SpecContext) {
		e, _ := start(w)
		child := func(of, reference string) string {
			GinkgoHelper()
			return makeThread(ctx, w, "echo", func(n *thread.NewThread) {
				n.ParentID, n.Reference, n.Child = of, reference, &store.Child{Name: "helper"}
			})
		}
		id := makeThread(ctx, w, "echo")
		retained, one, two := child(id, "retained"), child(id, "one"), child(id, "two")
		missed := child(two, "missed")
		Expect(w.Store.Apply(ctx, retained, nil, &store.Retain{})).To(Succeed())
		Expect(w.Store.Apply(ctx, two, nil, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
		for range 2 {
			Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		}
		for _, ended := range []string{id, one, two, missed} {
			Expect(w.Store.Thread(ctx, ended)).To(HaveField("TerminatedAt", Not(BeZero())), ended)
		}
		Expect(w.Store.Thread(ctx, retained)).To(HaveField("TerminatedAt", BeZero()), "the Thread that adopts it continues it")
	})

	It("terminates a thread in the middle of a run and refuses new work", Label("THR-05", "SUB-08"), func(ctx SpecContext) {
		hang()
		e, _ := start(w)
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		running(ctx, id)
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		Eventually(func() store.Run { return lastRun(ctx, w, id) }).Should(And(
			HaveField("Status", store.RunTerminated), HaveField("Reason", skeinv1.ReasonTerminated)))
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(t.TerminatedAt).NotTo(BeZero())
		Expect(t.TerminatedReason).To(Equal(skeinv1.ReasonTerminatedByRequest))
		Expect(w.Send(ctx, id, "more")).To(MatchError(store.ErrTerminated))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go"}), "reads still work")
		_, err = e.InvokeTool(ctx, id, "", "x", nil)
		Expect(err).To(MatchError(store.ErrTerminated))
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed(), "again is no error")
	})

	It("lets a run go without another write when its thread is purged", Label("THR-09"), func(ctx SpecContext) {
		hang()
		e, _ := start(w)
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		running(ctx, id)
		e.Abort(ctx, id, "deleted")
		Expect(w.Threads.Purge(ctx, id)).To(Succeed())
		Consistently(func() error { _, err := w.Store.Thread(ctx, id); return err }, "300ms").Should(MatchError(store.ErrNotFound))
	})

	It("leaves what is under way when the manager stops, for the next one", Label("RUN-02"), func(ctx SpecContext) {
		hang()
		_, stop := start(w)
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		running(ctx, id)
		stop()
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunRunning))
		w.Definitions.Put("hang", enginetest.Script(enginetest.Say("done by the next")))
		start(w)
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: done by the next"}))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1), "the same run goes on")
	})

	It("gives up a run whose lease was lost", Label("THR-12"), func(ctx SpecContext) {
		hang()
		stuck := &unrenewable{Store: w.Store}
		start(w, func(o *engine.Options) { o.Threads, o.LeaseTTL = w.Over(stuck), 2*time.Second })
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		running(ctx, id)
		w.Definitions.Put("hang", enginetest.Script(enginetest.Say("done by another")))
		start(w) // takes over once the term of the first has run out
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: done by another"}))
	})

	It("keeps the lease of a long run", Label("THR-12"), func(ctx SpecContext) {
		kept := &renewals{Store: w.Store}
		var tried atomic.Bool
		w.Models = patient{w.Models, "long", func(context.Context) bool { return tried.Load() }}
		w.Definitions.Put("long", enginetest.Script(enginetest.Say("done")))
		start(w, kept.in(w))
		id := makeThread(ctx, w, "long")
		send(ctx, w, id, "go")
		Eventually(kept.leases.Load).Should(BeNumerically(">=", 3), "each for a whole term")
		Expect(w.Store.Acquire(ctx, id, "another", hour)).Error().To(MatchError(store.ErrLeaseHeld))
		tried.Store(true)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: done"}))
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		var kinds []string
		for _, ev := range events {
			kinds = append(kinds, ev.Type)
		}
		Expect(kinds).To(ConsistOf("message.queued", "message.created", "run.started", "message.created", "run.ended"))
	})
})

// renewals is a store that counts by what it is kept from others: leases of threads, and claims of firings.
type renewals struct {
	store.Store
	term           time.Duration
	leases, claims atomic.Int64
}

// in has an engine of a world renew a hundred times as often as it would, and nothing but the time have it do so.
func (r *renewals) in(w *enginetest.World) func(*engine.Options) {
	return func(o *engine.Options) {
		r.term = o.LeaseTTL
		o.Threads, o.Clock, o.SweepInterval = w.Over(r), hasty{}, hour
	}
}

func (r *renewals) Renew(ctx context.Context, f *store.Fence, ttl time.Duration) error {
	err := r.Store.Renew(ctx, f, ttl)
	if err == nil && ttl == r.term {
		r.leases.Add(1)
	}
	return err
}

func (r *renewals) RenewFirings(ctx context.Context, ttl time.Duration, claims []store.FiringClaim) ([]store.FiringKey, error) {
	lost, err := r.Store.RenewFirings(ctx, ttl, claims)
	if err == nil && ttl == r.term {
		r.claims.Add(int64(len(claims) - len(lost)))
	}
	return lost, err
}

// hasty is the real clock with tickers that are a hundred times as fast.
type hasty struct{ clock.RealClock }

func (hasty) NewTicker(d time.Duration) clock.Ticker { return clock.RealClock{}.NewTicker(d / 100) }

// unrenewable is a store in which no lease can be renewed, as if the process had stood still.
type unrenewable struct{ store.Store }

func (unrenewable) Renew(context.Context, *store.Fence, time.Duration) error { return nil }
