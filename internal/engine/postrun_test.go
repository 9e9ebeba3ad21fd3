package engine_test

import (
	"context"
	"errors"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Post-run tasks", Label("THR-13"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
	})

	task := func(name string, do func(context.Context, postrun.Run) error) postrun.Task {
		return postrun.Task{Name: name, Do: do}
	}
	unfinished := func(ctx context.Context) []store.RunRef {
		GinkgoHelper()
		runs, err := w.Store.PostRunPending(ctx, time.Now().Add(time.Hour).UnixMicro(), 0)
		Expect(err).NotTo(HaveOccurred())
		return runs
	}

	It("hold neither the thread's lease nor its next run", func(ctx SpecContext) {
		began, goOn := make(chan postrun.Run, 8), make(chan struct{})
		start(w, func(o *engine.Options) {
			o.PostRun = []postrun.Task{task("slow", func(ctx context.Context, r postrun.Run) error {
				began <- r
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return nil
			})}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		var first postrun.Run
		Eventually(began).Should(Receive(&first))
		Expect(first.Thread.ID).To(Equal(id))
		Expect(first.Run).To(And(HaveField("ID", lastRun(ctx, w, id).ID), HaveField("Status", store.RunSucceeded)))
		Eventually(func() error { // an engine may hold it for a moment to look for more work
			fence, err := w.Store.Acquire(ctx, id, "another", time.Minute)
			if err == nil {
				err = w.Store.Release(ctx, fence)
			}
			return err
		}).Should(Succeed(), "nobody has the lease")

		send(ctx, w, id, "two")
		var second postrun.Run
		Eventually(began).Should(Receive(&second), "the second run has ended while the first one's task goes on")
		Expect(second.Run.ID).NotTo(Equal(first.Run.ID))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "assistant: re: one", "user: two", "assistant: re: two"}))
		Expect(unfinished(ctx)).To(HaveExactElements(HaveField("RunID", first.Run.ID), HaveField("RunID", second.Run.ID)))

		close(goOn)
		Eventually(unfinished).WithContext(ctx).Should(BeEmpty())
		Expect(began).NotTo(Receive(), "once each")
	})

	It("end when the Thread object is deleted, and go on when the thread is terminated", func(ctx SpecContext) {
		began, goOn, ended := make(chan string), make(chan struct{}), make(chan error, 8)
		e, _ := start(w, func(o *engine.Options) {
			o.PostRun = []postrun.Task{task("slow", func(ctx context.Context, r postrun.Run) error {
				began <- r.Thread.ID
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				ended <- context.Cause(ctx)
				return context.Cause(ctx)
			})}
		})
		terminated, retained, deleted := makeThread(ctx, w, "a"), makeThread(ctx, w, "a"), makeThread(ctx, w, "a")
		for _, id := range []string{terminated, retained, deleted} {
			send(ctx, w, id, "one")
			Eventually(began).Should(Receive(Equal(id)))
		}
		Expect(e.Terminate(ctx, terminated, skeinv1.ReasonTerminatedByRequest)).To(Succeed())

		Expect(w.Store.Apply(ctx, retained, nil, &store.Retain{})).To(Succeed())
		e.Abort(ctx, retained, "its object was deleted")
		Eventually(ended).Should(Receive(MatchError("the thread is being purged")))
		Expect(unfinished(ctx)).To(ConsistOf(HaveField("ThreadID", terminated), HaveField("ThreadID", retained), HaveField("ThreadID", deleted)))

		Expect(w.Store.MarkDeleted(ctx, deleted, deleted)).To(Succeed())
		e.Abort(ctx, deleted, "its object was deleted")
		Eventually(ended).Should(Receive(MatchError("the thread is being purged")))
		Expect(ended).NotTo(Receive(), "a task of a terminated thread goes on")
		close(goOn)
		Eventually(ended).Should(Receive(BeNil()))
	})

	It("go on when one of them fails, panics or takes too long", func(ctx SpecContext) {
		var mu sync.Mutex
		var did []string
		note := func(name string, then func(context.Context) error) postrun.Task {
			return task(name, func(ctx context.Context, _ postrun.Run) error {
				err := then(ctx)
				mu.Lock()
				defer mu.Unlock()
				did = append(did, name)
				return err
			})
		}
		start(w, func(o *engine.Options) {
			o.PostRunTimeout = 300 * time.Millisecond
			o.PostRun = []postrun.Task{
				note("fails", func(context.Context) error { return errors.New("no") }),
				task("panics", func(context.Context, postrun.Run) error { panic("no") }),
				note("works", func(context.Context) error { return nil }),
				note("waits", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }),
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		rest(ctx, w, id)
		Eventually(unfinished).WithContext(ctx).Should(BeEmpty())
		mu.Lock()
		defer mu.Unlock()
		Expect(did).To(ConsistOf("fails", "works", "waits"))
	})

	It("are done by the next manager when one is lost before they were", func(ctx SpecContext) {
		did := make(chan string, 8)
		tasks := func(o *engine.Options) {
			o.PostRunTimeout, o.LeaseTTL, o.SweepInterval = 50*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
			o.PostRun = []postrun.Task{task("note", func(_ context.Context, r postrun.Run) error {
				did <- r.Run.ID
				return nil
			})}
		}
		gate := &enginetest.Gate{Store: w.Store}
		_, stop := start(w, tasks, func(o *engine.Options) {
			o.Threads = w.Over(gate)
			o.Faults = func(p string) {
				if p == "tasks.before" {
					gate.Cut()
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		Eventually(gate.IsCut).Should(BeTrue())
		stop()
		run := lastRun(ctx, w, id)
		Expect(run.Status).To(Equal(store.RunSucceeded))
		Expect(unfinished(ctx)).To(ConsistOf(store.RunRef{ThreadID: id, RunID: run.ID}))
		for len(did) > 0 {
			<-did
		}
		start(w, tasks)
		Eventually(did).Should(Receive(Equal(run.ID)))
		Eventually(unfinished).WithContext(ctx).Should(BeEmpty())
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1), "the run itself is not made again")
	})

	It("follow a run that was ended by terminating its thread", func(ctx SpecContext) {
		did := make(chan store.RunStatus, 8)
		w.Definitions.Put("hang", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		e, _ := start(w, func(o *engine.Options) {
			o.PostRun = []postrun.Task{task("note", func(_ context.Context, r postrun.Run) error {
				did <- r.Run.Status
				return nil
			})}
		})
		id := makeThread(ctx, w, "hang")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		Eventually(did).Should(Receive(Equal(store.RunTerminated)))
		Eventually(unfinished).WithContext(ctx).Should(BeEmpty())
	})
})
