package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// paused is the store of a replica that stands still after its first claim: it claims nothing more, and its renewals come to nothing.
// It notes with what the outcome was refused.
type paused struct {
	store.Store
	claimed  atomic.Bool
	finished chan error
}

func (s *paused) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, shares map[string]int, running ...store.FiringKey) ([]store.Firing, error) {
	if s.claimed.Load() {
		return nil, nil
	}
	firings, err := s.Store.ClaimFirings(ctx, owner, ttl, shares, running...)
	s.claimed.Store(len(firings) > 0)
	return firings, err
}

func (s *paused) RenewFirings(context.Context, time.Duration, []store.FiringClaim) ([]store.FiringKey, error) {
	return nil, nil
}

func (s *paused) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	err := s.Store.FinishFiring(ctx, end)
	s.finished <- err
	return err
}

var _ = Describe("Firings of effects", func() {
	var w *enginetest.World
	var sandboxes *enginetest.Processes
	BeforeEach(func() {
		w = newWorld()
		var err error
		sandboxes, err = w.UseProcesses(process.Options{MaxWallTime: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("noted: {{.Last.Content}}")))
	})

	target := func(t effects.Target) func(*store.Firing) {
		return func(f *store.Firing) { f.Target = t.Encode() }
	}
	firing := func(ctx context.Context, f store.Firing) *store.Firing {
		GinkgoHelper()
		got, err := w.Store.Firing(ctx, f.Key())
		Expect(err).NotTo(HaveOccurred())
		return got
	}
	value := func(ctx context.Context, id, key string) string {
		v, err := w.Store.Value(ctx, id, key)
		if err != nil {
			return ""
		}
		return string(v)
	}
	set := func(ctx context.Context, id, key string) {
		GinkgoHelper()
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetValue(ctx, key, []byte("true"))).To(Succeed())
	}
	// held runs until "go" is set. "n" counts how often it has begun.
	const held = `export default async (state) => {
  await state.setValue('n', ((await state.getValue('n')) ?? 0) + 1);
  while (!(await state.getValue('go')));
  await state.setValue('done', true);
}`
	begun := func(ctx context.Context, id, times string) {
		GinkgoHelper()
		Eventually(func() string { return value(ctx, id, "n") }).Should(Equal(times))
	}

	Describe("whose handler fails", Label("EFF-04"), func() {
		const flaky = `export default async (state) => {
  const n = ((await state.getValue('n')) ?? 0) + 1;
  await state.setValue('n', n);
  if (n < 3) throw new Error('no ' + n);
}`

		It("are tried again as their own policy says, each time later", func(ctx SpecContext) {
			putEffect(w, "flaky", flaky)
			start(w)
			id := makeThread(ctx, w, "a")
			f := endedFiring(ctx, w, fireEffect(ctx, w, id, "flaky", nil, target(effects.Target{Retry: &effects.Retry{Attempts: 3, First: 200 * time.Millisecond}})))
			Expect(f).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 3), HaveField("Error", "")))
			Expect(value(ctx, id, "n")).To(Equal("3"))
			Expect(f.EndedAt - f.StartedAt).To(BeNumerically(">=", (600 * time.Millisecond).Microseconds()))
		})

		It("fail when their policy allows no other attempt", func(ctx SpecContext) {
			putEffect(w, "flaky", flaky)
			start(w)
			id := makeThread(ctx, w, "a")
			f := endedFiring(ctx, w, fireEffect(ctx, w, id, "flaky", nil, target(effects.Target{Retry: &effects.Retry{Attempts: 2, First: time.Millisecond}})))
			Expect(f).To(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 2), HaveField("Error", HavePrefix("gave up after 2 attempts: Error: no 2"))))
			Expect(value(ctx, id, "n")).To(Equal("2"))
		})
	})

	It("end when their timeout has passed, which replaces the definition's", Label("EFF-02"), func(ctx SpecContext) {
		putEffect(w, "endless", "export default () => { for (;;); }")
		putEffect(w, "long", "export default () => { for (const begun = Date.now(); Date.now() < begun + 1000;); }", func(e *definition.Effect) { e.Spec.Timeout = ms(200) })
		start(w)
		id := makeThread(ctx, w, "a")
		f := endedFiring(ctx, w, fireEffect(ctx, w, id, "endless", nil, target(effects.Target{Timeout: 300 * time.Millisecond})))
		Expect(f).To(And(HaveField("Status", store.FiringFailed), HaveField("Attempts", 1), HaveField("Error", "it did not end within 300ms, which spec.timeout allows")))
		f = endedFiring(ctx, w, fireEffect(ctx, w, id, "long", nil, target(effects.Target{Timeout: time.Minute})))
		Expect(f).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Error", "")))
	})

	It("are skipped when they wait for longer than they may begin late", Label("EFF-04", "EFF-05", "EFF-07"), func(ctx SpecContext) {
		told := make(chan string, 10)
		start(w, func(o *engine.Options) {
			o.MissedFiring = func(f *store.Firing, k store.EffectSkip, begins bool) {
				told <- fmt.Sprintf("%s: %s of %d, new: %v", f.Name, k.Reason, k.Due, begins)
			}
		})
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "never", nil, target(effects.Target{Deadline: 500 * time.Millisecond, Counts: true}))
		Eventually(func() string { return firing(ctx, f).Waiting }).Should(ContainSubstring(`Effect "never" does not exist`))
		late := And(HavePrefix("it could not begin within 500ms of its due time"), ContainSubstring(`Effect "never" does not exist`))
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringCanceled), HaveField("Error", late)))
		Expect(w.Store.EffectSkips(ctx, f.EffectID, 10)).To(ConsistOf(And(HaveField("Due", f.Due), HaveField("ThreadID", id), HaveField("Reason", skeinv1.ReasonMissed), HaveField("Detail", late))))
		Eventually(told).Should(Receive(Equal(fmt.Sprintf("%s: Missed of %d, new: true", f.Name, f.Due))))
	})

	It("wait while the queue of their thread is full", Label("EFF-04", "MSG-07"), func(ctx SpecContext) {
		w.Definitions.Put("busy", enginetest.Script(skeinv1.ScriptStep{Latency: ms(3600_000)}))
		start(w)
		id := makeThread(ctx, w, "busy")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		for range 5 {
			send(ctx, w, id, "more")
		}
		f := fireEffect(ctx, w, id, "", nil, target(effects.Target{Message: &effects.Message{Content: "too much"}}))
		Eventually(func() *store.Firing { return firing(ctx, f) }).Should(HaveValue(And(HaveField("Waiting", ContainSubstring("too many messages")), HaveField("Attempts", 0))))
		items, err := w.Store.Inbox(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.Apply(ctx, id, nil, &store.Dequeue{Seqs: []int64{items[0].Seq}})).To(Succeed())
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1), HaveField("Waiting", "")))
	})

	DescribeTable("do once what their target says, also after a crash", Label("EFF-04", "EFF-06"), func(ctx SpecContext, t effects.Target, args any, want ...any) {
		gate := &enginetest.Gate{Store: w.Store}
		var cut atomic.Bool
		_, stop := start(w, func(o *engine.Options) {
			o.Threads = w.Over(gate)
			o.Faults = func(p string) {
				if p == "effect.finish.before" && cut.CompareAndSwap(false, true) {
					gate.Cut()
				}
			}
		})
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "", args, target(t))
		Eventually(gate.IsCut).Should(BeTrue())
		stop()
		Expect(gate.Expire(ctx)).To(Succeed())
		start(w)
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 2)))
		quiet(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements(want...))
	},
		Entry("a message", effects.Target{Message: &effects.Message{Content: "Good morning"}}, nil, "user: Good morning", "assistant: noted: Good morning"),
		Entry("a tool on the thread", effects.Target{Queue: &effects.ToolCall{Name: "set_value"}}, map[string]any{"key": "k", "value": 1}, "assistant ->set_value", HavePrefix("tool set_value success"), HavePrefix("assistant: noted")),
	)

	It("that are canceled stop their handler, and record nothing more", Label("EFF-05"), func(ctx SpecContext) {
		putEffect(w, "held", held)
		start(w, func(o *engine.Options) { o.LeaseTTL = hour }) // no claim is renewed meanwhile, so only the notification can tell
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "held", nil)
		begun(ctx, id, "1")
		Expect(w.Store.CancelFirings(ctx, "not wanted", f.Key())).To(Equal(1))
		canceled := firing(ctx, f)
		Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero())
		set(ctx, id, "go")
		Consistently(func() string { return value(ctx, id, "done") }, "200ms").Should(BeEmpty())
		Expect(firing(ctx, f)).To(Equal(canceled))
		Expect(canceled).To(HaveValue(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "not wanted"))))
	})

	It("are given up at a shutdown, and run at once elsewhere", Label("EFF-04"), func(ctx SpecContext) {
		putEffect(w, "held", held)
		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "held", nil)
		begun(ctx, id, "1")
		stop()
		Expect(firing(ctx, f)).To(HaveValue(And(HaveField("Status", store.FiringPending), HaveField("Attempts", 0), HaveField("StartedAt", Not(BeZero())))), "it had begun, so it is not late")
		start(w)
		begun(ctx, id, "2")
		set(ctx, id, "go")
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1)))
	})

	It("are not ended by a replica that stood still while another took them over", Label("EFF-04"), func(ctx SpecContext) {
		putEffect(w, "held", held)
		still := &paused{Store: w.Store, finished: make(chan error, 10)}
		start(w, func(o *engine.Options) {
			o.Threads = w.Over(still)
			o.LeaseTTL = 90 * time.Millisecond
		})
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "held", nil)
		begun(ctx, id, "1")
		Eventually(func() ([]store.Firing, error) {
			return w.Store.ClaimFirings(ctx, "another", hour, map[string]int{enginetest.Namespace: 1})
		}).Should(ConsistOf(And(HaveField("Epoch", int64(2)), HaveField("Attempts", 2))))
		taken := firing(ctx, f)
		set(ctx, id, "go")
		var err error
		Eventually(still.finished).Should(Receive(&err))
		Expect(err).To(MatchError(store.ErrFiringLost))
		Expect(firing(ctx, f)).To(Equal(taken))
		Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Epoch: 2, Status: store.FiringSucceeded})).To(Succeed())
		Expect(firing(ctx, f).Status).To(Equal(store.FiringSucceeded))
	})
})
