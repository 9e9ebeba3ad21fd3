package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

var _ = Describe("Callers outside of runs", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	set := func(key string, value any) []byte { return enginetest.JSON(map[string]any{"key": key, "value": value}) }

	It("queue a tool for a thread at rest, which starts a run", Label("TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("done")))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		Expect(e.QueueTool(ctx, id, "", "set_value", set("k", 1))).To(Succeed())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("assistant ->set_value", HavePrefix("tool set_value success"), "assistant: done"))
		Expect(w.Store.Value(ctx, id, "k")).To(MatchJSON(`1`))
	})

	It("queue a tool for the run under way, once under a key", Label("TOL-01", "MSG-10"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("get_value", map[string]any{"key": "k"}), enginetest.Say("done")))
		var queued atomic.Bool
		w.Models = patient{w.Models, "a", func(context.Context) bool { return queued.Load() }}
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		for range 3 {
			Expect(e.QueueTool(ctx, id, "key", "set_value", set("k", 1))).To(Succeed())
		}
		queued.Store(true)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->get_value", HavePrefix("tool get_value success"),
			"assistant ->set_value", HavePrefix("tool set_value success"), "assistant: done"))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1))
	})

	It("invoke a tool beside a run, and learn of tools that are not there", Label("TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		out, err := e.InvokeTool(ctx, id, "", "set_value", set("k", 2))
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Status).To(Equal(tool.StatusSuccess), out.Content)
		Expect(told(ctx, w, id)).To(BeEmpty())
		var unknown *definition.UnknownError
		_, err = e.InvokeTool(ctx, id, "", "nothing", nil)
		Expect(err).To(MatchError(ContainSubstring("set_value")))
		Expect(err).To(BeAssignableToTypeOf(unknown))
		Expect(e.QueueTool(ctx, id, "", "nothing", nil)).To(BeAssignableToTypeOf(unknown))
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV, skeinv1.BuiltinKV))
		var notReady *definition.NotReadyError
		_, err = e.InvokeTool(ctx, id, "", "set_value", nil)
		Expect(err).To(BeAssignableToTypeOf(notReady), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("two tools")))
	})

	It("speak for a child to its parent", Label("SUB-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("heard: {{.Last.Content}}")))
		e, _ := start(w)
		parent := makeThread(ctx, w, "a")
		child := makeThread(ctx, w, "a", func(n *thread.NewThread) {
			n.ParentID, n.Reference, n.Child = parent, "ref", &store.Child{Name: "helper"}
		})
		for range 2 {
			Expect(e.NotifyParent(ctx, child, "key", "halfway")).To(Succeed())
		}
		rest(ctx, w, parent)
		Expect(told(ctx, w, parent)).To(Equal([]string{"user: halfway", "assistant: heard: halfway"}))
		Expect(e.NotifyParent(ctx, parent, "", "x")).To(MatchError(ContainSubstring("no parent")))
		Expect(e.Terminate(ctx, parent, "x")).To(Succeed())
		Expect(e.NotifyParent(ctx, child, "", "x")).To(MatchError(store.ErrTerminated), "it went with its parent")
	})

	DescribeTable("says that the parent of an orphan takes no more messages", Label("SUB-05", "THR-07"), func(ctx SpecContext, remove func(ctx context.Context, id string) error) {
		w.Definitions.Put("a")
		e, _ := start(w)
		parent := makeThread(ctx, w, "a")
		child := makeThread(ctx, w, "a", func(n *thread.NewThread) {
			n.ParentID, n.Reference, n.Child = parent, "ref", &store.Child{Name: "helper"}
		})
		Expect(remove(ctx, parent)).To(Succeed())
		Expect(e.NotifyParent(ctx, child, "key", "halfway")).To(MatchError(executions.ErrParentTerminated))
	},
		Entry("that was deleted", func(ctx context.Context, id string) error {
			_, err := w.Store.PurgeThread(ctx, id)
			return err
		}),
		Entry("whose data is retained", func(ctx context.Context, id string) error { return w.Store.Apply(ctx, id, nil, &store.Retain{}) }),
		Entry("that is being deleted", func(ctx context.Context, id string) error { return w.Store.MarkDeleted(ctx, id, id) }))

	It("cannot replace a termination with a status", Label("SUB-05", "THR-05"), func(ctx SpecContext) {
		w.Definitions.Put("a")
		e, _ := start(w)
		parent := makeThread(ctx, w, "a")
		Expect(e.SetStatus(ctx, parent, strings.Repeat("x", 201))).To(MatchError(ContainSubstring("200 bytes")))
		for range 20 {
			child := makeThread(ctx, w, "a", func(n *thread.NewThread) {
				n.ParentID, n.Reference, n.Child = parent, "ref", &store.Child{Name: "helper"}
			})
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					defer GinkgoRecover()
					if err := e.SetStatus(ctx, child, "busy"); err != nil {
						Expect(err).To(MatchError(store.ErrTerminated))
					}
				})
			}
			group.Go(func() {
				defer GinkgoRecover()
				Expect(e.Terminate(ctx, child, "x")).To(Succeed())
			})
			group.Wait()
			t, err := w.Store.Thread(ctx, child)
			Expect(err).NotTo(HaveOccurred())
			Expect(t.RegistryStatus).To(Equal("terminated"))
		}
	})

	It("see that a run is being stopped", Label("RUN-03"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(skeinv1.ScriptStep{Content: "slow", Latency: ms(3600_000)}))
		reached, resume := make(chan struct{}), make(chan struct{})
		e, _ := start(w, func(o *engine.Options) {
			o.Faults = func(point string) {
				if point == "stop.before" {
					close(reached)
					<-resume
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunRunning))
		Expect(e.Stopping(id)).To(BeFalse())
		stopped := make(chan error, 1)
		go func() { stopped <- e.Stop(ctx, id, "enough") }() // it returns when the run has ended
		Eventually(reached).Should(BeClosed())
		Expect(e.Stopping(id)).To(BeTrue())
		close(resume)
		Eventually(stopped).Should(Receive(BeNil()))
		rest(ctx, w, id)
		Eventually(func() bool { return e.Stopping(id) }).Should(BeFalse())
	})

	It("load definitions", Label("AGT-07"), func(ctx SpecContext) {
		w.Definitions.Put("a")
		e, _ := start(w)
		Expect(e.DefinitionNames(ctx, enginetest.Namespace, "agent")).To(Equal([]string{"a"}))
		Expect(e.Definition(ctx, enginetest.Namespace, "agent", "a")).To(ContainSubstring(`"a"`))
		_, err := e.Definition(ctx, enginetest.Namespace, "model", "none")
		Expect(err).To(BeAssignableToTypeOf(&definition.UnknownError{}))
	})
})
