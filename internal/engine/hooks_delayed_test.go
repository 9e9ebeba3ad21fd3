package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// refusing has no sandboxes while it is full, none that comes while it is slow, and while it is busy none with room, or
// none that says so while it is stuck.
type refusing struct {
	ports.Sandboxes
	full, slow, busy, stuck atomic.Bool
	asked, opening, givenUp atomic.Int32
}

func (r *refusing) Discard(ctx context.Context, t *store.Thread, sbx sandbox.Sandbox) {
	r.givenUp.Add(1)
	r.Sandboxes.Discard(ctx, t, sbx)
}

func (r *refusing) Acquire(ctx context.Context, t *store.Thread, pool string) (sandbox.Sandbox, func(), error) {
	r.asked.Add(1)
	switch {
	case r.full.Load():
		return nil, nil, &ports.NoSandboxError{Message: "exceeded quota: pods"}
	case r.slow.Load():
		<-ctx.Done()
		return nil, nil, context.Cause(ctx)
	}
	sbx, release, err := r.Sandboxes.Acquire(ctx, t, pool)
	if err == nil && r.busy.Load() {
		sbx = crowded{sbx}
	}
	if err == nil && r.stuck.Load() {
		sbx = stuck{sbx, r}
	}
	return sbx, release, err
}

// crowded is a sandbox without room for another isolate.
type crowded struct{ sandbox.Sandbox }

func (crowded) OpenIsolate(context.Context, sandbox.IsolateRequest) (sandbox.Isolate, error) {
	return nil, sandbox.ErrBusy
}

// stuck is a sandbox that has those wait who want an isolate.
type stuck struct {
	sandbox.Sandbox
	of *refusing
}

func (s stuck) OpenIsolate(ctx context.Context, _ sandbox.IsolateRequest) (sandbox.Isolate, error) {
	s.of.opening.Add(1)
	<-ctx.Done()
	return nil, fmt.Errorf("opening an isolate: %w", &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: ctx.Err().Error()})
}

var _ = Describe("Hooks for which there is no sandbox", Label("HOK-01"), func() {
	var w *enginetest.World
	var pods *refusing
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		pods = &refusing{Sandboxes: sandboxes}
		w.Sandboxes = pods
		w.Definitions.Put("a", note(skeinv1.HookAfterCreateMessage), enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
	})
	// held gives how often each hook in the inbox was tried, where all are held and nothing else is there.
	held := func(ctx context.Context, g Gomega, id string) (out []string) {
		items, err := w.Store.Inbox(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			g.Expect(item.Kind).To(Equal(store.InboxHook))
			g.Expect(item.DelayedUntil).NotTo(BeZero())
			out = append(out, fmt.Sprint(item.Tries))
		}
		return out
	}
	// answered waits until that many messages have been answered, and the hooks are held that were to be told of it.
	answered := func(ctx context.Context, id string, runs int, tries ...string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(w.Runs(ctx, id)).To(And(HaveLen(runs), HaveEach(HaveField("Status", store.RunSucceeded))))
			g.Expect(held(ctx, g, id)).To(Equal(tries))
		}).Should(Succeed())
	}
	// warm starts the sandbox of a thread: who is to be told of something later waits for one for seconds only, in which a
	// machine that is busy may not start a process.
	warm := func(ctx context.Context, id string) {
		GinkgoHelper()
		_, release, err := pods.Sandboxes.Acquire(ctx, &store.Thread{ID: id}, "")
		Expect(err).NotTo(HaveOccurred())
		release()
	}
	hourly := func(o *engine.Options) { o.HookRetry = time.Hour }

	It("wait also for a busy sandbox", Label("COD-06"), func(ctx SpecContext) {
		pods.busy.Store(true)
		start(w, hourly)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		answered(ctx, id, 1, "1", "0")
		Expect(failures(ctx, w, id)).To(BeEmpty())
	})

	It("run after a message that is already there", func(ctx SpecContext) {
		pods.full.Store(true)
		_, stop := start(w, hourly)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		answered(ctx, id, 1, "1", "0")
		stop()
		send(ctx, w, id, "two")
		pods.full.Store(false)
		pods.slow.Store(true) // a caller that waits for a sandbox waits until it gives up
		pods.asked.Store(0)
		var before atomic.Int32
		clock := &shifted{}
		clock.by.Store(int64(2 * time.Hour))
		start(w, hourly, func(o *engine.Options) {
			o.Clock, o.SweepInterval = clock, 24*time.Hour
			o.Faults = func(point string) {
				if point == "model.before" {
					before.Store(pods.asked.Load())
				}
			}
		})
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(And(HaveLen(2), HaveEach(HaveField("Status", store.RunSucceeded))))
		Expect(before.Load()).To(BeZero(), "no sandbox was waited for before it was answered")
		Eventually(pods.asked.Load).ShouldNot(BeZero(), "the hooks have their turn when it was")
	})

	It("run after a message that arrives while they wait for a busy sandbox", Label("COD-06"), func(ctx SpecContext) {
		pods.full.Store(true)
		_, stop := start(w, hourly)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		answered(ctx, id, 1, "1", "0")
		stop()
		pods.full.Store(false)
		pods.stuck.Store(true)
		clock := &shifted{}
		clock.by.Store(int64(2 * time.Hour))
		start(w, hourly, func(o *engine.Options) { o.Clock = clock })
		Eventually(pods.opening.Load).ShouldNot(BeZero())
		send(ctx, w, id, "two")
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(And(HaveLen(2), HaveEach(HaveField("Status", store.RunSucceeded))))
		Expect(pods.givenUp.Load()).To(BeZero(), "the sandbox is a good one")
	})

	// child gives a child that is over with its first run, of a parent that has no hooks.
	child := func(ctx context.Context) string {
		GinkgoHelper()
		w.Definitions.Put("parent", enginetest.Script(enginetest.Say("ok")))
		parent := makeThread(ctx, w, "parent")
		return makeThread(ctx, w, "child", func(n *thread.NewThread) { n.ParentID, n.Child = parent, &store.Child{Name: "c"} })
	}

	It("are recorded as failed when the engine stops while a terminated thread waits for them", Label("SUB-02"), func(ctx SpecContext) {
		w.Definitions.Put("child", note(skeinv1.HookAfterCreateMessage), enginetest.Script(skeinv1.ScriptStep{Error: "bye"}))
		e, stop := start(w, func(o *engine.Options) {
			o.Faults = func(point string) {
				if point == "fail.after" {
					pods.asked.Store(0)
					pods.slow.Store(true)
				}
			}
		})
		id := child(ctx)
		send(ctx, w, id, "go")
		Eventually(func() bool { return pods.slow.Load() && pods.asked.Load() > 0 }).Should(BeTrue())
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		stop()
		Expect(failures(ctx, w, id)).To(ConsistOf(HaveField("Error", HaveSuffix("; the thread is terminated"))))
	})

	It("get the last message of a terminated thread in the same sandbox", Label("SUB-02"), func(ctx SpecContext) {
		w.Definitions.Put("child", note(skeinv1.HookAfterCreateMessage), func(a *definition.Agent) { a.A.Spec.SessionStop = &skeinv1.SessionTool{Name: "finish"} },
			enginetest.Script(enginetest.Call("finish", map[string]any{"message": "bye"})))
		var over, terminated atomic.Bool
		var e *engine.Engine
		var id string
		ready := make(chan struct{})
		e, _ = start(w, func(o *engine.Options) {
			o.Faults = func(point string) {
				if point == "finish.after" {
					over.Store(true)
				}
				if point == "hook.before" && over.Load() && terminated.CompareAndSwap(false, true) {
					defer GinkgoRecover()
					<-ready
					Expect(e.Terminate(context.Background(), id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
				}
			}
		})
		id = child(ctx)
		close(ready)
		send(ctx, w, id, "go")
		Eventually(func() []string { return noted(ctx, w, id, "after_create_message") }).Should(ContainElement(ContainSubstring(`"content":"bye"`)))
		Expect(terminated.Load()).To(BeTrue())
		Expect(failures(ctx, w, id)).To(BeEmpty())
		Expect(pods.givenUp.Load()).To(BeZero())
	})

	DescribeTable("get the last messages of a thread after one that waited, or the log says why not", Label("SUB-02"),
		func(ctx SpecContext, step skeinv1.ScriptStep, full bool) {
			w.Definitions.Put("child", note(skeinv1.HookAfterCreateMessage), enginetest.Script(step))
			e, _ := start(w, func(o *engine.Options) { o.HookRetry = 100 * time.Hour })
			parent := makeThread(ctx, w, "a")
			id := makeThread(ctx, w, "child", func(n *thread.NewThread) { n.ParentID, n.Child = parent, &store.Child{Name: "c"} })
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			row, err := st.Info(ctx)
			Expect(err).NotTo(HaveOccurred())
			pods.full.Store(true)
			aside := "aside"
			_, err = st.WithHooks(e.MessageHooks(ctx, row)).Inject(ctx, thread.NewMessage{Content: &aside})
			Expect(err).NotTo(HaveOccurred())
			Eventually(func(g Gomega) { g.Expect(held(ctx, g, id)).To(Equal([]string{"1"})) }).Should(Succeed())
			warm(ctx, id)
			pods.full.Store(full)
			send(ctx, w, id, "go")
			want := []any{ContainSubstring("aside"), ContainSubstring("go"), ContainSubstring("bye")}
			if full {
				Eventually(func() []store.HookFailure { return failures(ctx, w, id) }).Should(And(HaveLen(3),
					HaveEach(HaveField("Error", And(ContainSubstring("exceeded quota"), HaveSuffix("; the thread is terminated"))))))
				want = nil
			} else {
				Eventually(func() []string { return noted(ctx, w, id, "after_create_message") }).Should(HaveLen(3))
				Expect(failures(ctx, w, id)).To(BeEmpty())
			}
			Expect(noted(ctx, w, id, "after_create_message")).To(HaveExactElements(want...))
		},
		Entry("when there is a sandbox again", enginetest.Say("bye"), false),
		Entry("when it failed", skeinv1.ScriptStep{Error: "bye"}, false),
		Entry("when there is none still", enginetest.Say("bye"), true))

	// Three replicas, each hours after the one before, so that the one knows nothing from the other's memory and no
	// time has to pass.
	It("run later and in order, or are given up, while the conversation goes on", func(ctx SpecContext) {
		pods.full.Store(true)
		after := func(hours int, tries int) func(*engine.Options) {
			return func(o *engine.Options) {
				o.HookRetry, o.Limits.HookTries = time.Hour, tries
				if hours > 0 {
					o.Clock = clocktesting.NewFakeClock(time.Now().Add(time.Duration(hours) * time.Hour))
				}
			}
		}

		_, stop := start(w, after(0, 20))
		id := makeThread(ctx, w, "a")
		for i, text := range []string{"one", "two"} {
			send(ctx, w, id, text)
			answered(ctx, id, i+1, [][]string{{"1", "0"}, {"1", "0", "0", "0"}}[i]...) // the first of the two has been tried for, once
		}
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "assistant: re: one", "user: two", "assistant: re: two"}))
		Expect(failures(ctx, w, id)).To(BeEmpty())
		Eventually(w.Store.Runnable).WithContext(ctx).WithArguments(10).Should(BeEmpty(), "nobody need look at it before it is time")
		stop()

		_, stop = start(w, after(2, 2))
		Eventually(func(g Gomega) { g.Expect(held(ctx, g, id)).To(Equal([]string{"1", "1", "1"})) }).Should(Succeed())
		Expect(failures(ctx, w, id)).To(ConsistOf(HaveField("Error", And(HavePrefix("gave up after 2 tries: "), ContainSubstring("exceeded quota")))))
		stop()

		warm(ctx, id)
		pods.full.Store(false)
		clock := &shifted{}
		clock.by.Store(int64(9 * time.Hour))
		start(w, after(0, 20), func(o *engine.Options) { o.Clock = clock })
		Eventually(func() ([]store.InboxItem, error) {
			clock.by.Add(int64(2 * time.Hour)) // it is time again, also where the sandbox took too long to take the code
			return w.Store.Inbox(ctx, id)
		}).Should(BeEmpty())
		quiet(ctx, w, id)
		Expect(noted(ctx, w, id, "after_create_message")).To(HaveExactElements(
			ContainSubstring(`"content":"re: one"`), ContainSubstring(`"content":"two"`), ContainSubstring(`"content":"re: two"`)))
		Expect(failures(ctx, w, id)).To(HaveLen(1))
	})
})
