package engine_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A thread whose object was deleted", Label("THR-09", "K8S-05"), func() {
	for _, by := range []struct {
		text  string
		abort bool
	}{{"that deletes it", true}, {"that another one told of it", false}} {
		It("stops at once, and no run of it begins again before it is purged, on a replica "+by.text, func(ctx SpecContext) {
			w := newWorld()
			w.Definitions.Put("works", enginetest.Script(enginetest.Say("late")))
			w.Definitions.Put("witness", enginetest.Script(enginetest.Say("well")))
			calls := &hanging{name: "works", begun: make(chan struct{}, 10), ended: make(chan struct{}, 10)}
			e, _ := start(w, func(o *engine.Options) {
				calls.Factory, o.Models = o.Models, calls
				o.Workers, o.SweepInterval, o.LeaseTTL = 1, hour, hour
			})
			id := makeThread(ctx, w, "works")
			send(ctx, w, id, "hello")
			Eventually(ctx, calls.begun).Should(Receive())
			send(ctx, w, id, "and what waits")

			Expect(w.Store.MarkDeleted(ctx, id, id)).To(Succeed())
			if by.abort {
				e.Abort(ctx, id, "the spec deletes it")
			}
			Eventually(ctx, calls.ended).Should(Receive())
			e.Wake(id)
			other := makeThread(ctx, w, "witness") // the only worker comes to it after the deleted thread
			send(ctx, w, other, "hello")
			Expect(rest(ctx, w, other).Status).To(Equal(store.RunSucceeded))
			Expect(calls.begun).NotTo(Receive(), "the model was called again")

			start(w, func(o *engine.Options) { o.Owner, o.Models, o.Workers = "next", calls, 1 }) // which looks for work when it begins
			send(ctx, w, other, "again")
			Eventually(func() []string { return told(ctx, w, other) }).Should(HaveLen(4))
			Expect(calls.begun).NotTo(Receive(), "the next manager called the model again")
		})
	}
})

var _ = Describe("The subagents of a thread", Label("THR-09", "SUB-08"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("parent", func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true}}
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
		}, enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
			enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "check"})}}))
	})
	// waiting makes a thread that waits for its child.
	waiting := func(ctx context.Context) (id, child string) {
		GinkgoHelper()
		id = makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunWaiting))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(1))
		return id, children[0].ID
	}
	retain := func(ctx context.Context, id string) {
		GinkgoHelper()
		Expect(w.Store.Apply(ctx, id, nil, &store.Retain{})).To(Succeed())
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonThreadDeleted)))
	}
	finishes := func(ctx context.Context, child string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			t, err := w.Store.Thread(ctx, child)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(t.TerminatedReason).To(Equal(skeinv1.ReasonSessionEnded))
		}).Should(Succeed())
		Expect(told(ctx, w, child)).To(Equal([]string{"user: check", "assistant: checked"}))
		Expect(lastRun(ctx, w, child).Status).To(Equal(store.RunSucceeded))
	}

	It("begin their work although the thread is retained", func(ctx SpecContext) {
		e, _ := start(w)
		id, child := waiting(ctx)
		retain(ctx, id)
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("checked"))) // not before, so that it cannot have begun
		e.Wake(child)
		finishes(ctx, child)
	})

	It("continue their work under another lease after the thread was retained", func(ctx SpecContext) {
		var retained atomic.Bool
		w.Models = patient{w.Models, "child", func(context.Context) bool { return retained.Load() }}
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("checked")))
		_, stop := start(w)
		id, child := waiting(ctx)
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, child).Status }).Should(Equal(store.RunRunning))
		stop()
		retain(ctx, id)
		retained.Store(true)
		start(w)
		finishes(ctx, child)
	})

	DescribeTable("are lost once to the thread that waits for them when their deletion waits", func(ctx SpecContext, end func(e *engine.Engine, child string) error) {
		e, stop := start(w)
		id, child := waiting(ctx)
		stop()                                                       // nothing takes what is queued
		Expect(w.Store.MarkDeleted(ctx, child, child)).To(Succeed()) // the thread controller tells the parent then
		Expect(end(e, child)).To(Succeed())
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
	},
		Entry("and they are terminated", func(e *engine.Engine, child string) error {
			return e.Terminate(context.Background(), child, skeinv1.ReasonTerminatedByRequest)
		}),
		Entry("and their conversation is destroyed", func(e *engine.Engine, child string) error {
			return e.Destroy(context.Background(), child)
		}),
	)
})

// hanging has calls of one model, by its name, end with their context only.
type hanging struct {
	model.Factory
	name         string
	begun, ended chan struct{}
}

func (s *hanging) Client(c model.Config) (model.Client, error) {
	client, err := s.Factory.Client(c)
	if c.Name == s.name && err == nil {
		client = &hangingClient{Client: client, of: s}
	}
	return client, err
}

type hangingClient struct {
	model.Client
	of *hanging
}

func (c *hangingClient) Stream(ctx context.Context, _ model.Request, _ func(model.Delta)) (*model.Response, error) {
	c.of.begun <- struct{}{}
	<-ctx.Done()
	c.of.ended <- struct{}{}
	return nil, context.Cause(ctx)
}
