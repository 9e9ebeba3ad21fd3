package engine_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// meeting is a store in which the first Acquire, once armed, waits until its context ends.
type meeting struct {
	store.Store
	armed   atomic.Bool
	entered chan struct{}
}

func (m *meeting) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (*store.Fence, error) {
	if m.armed.CompareAndSwap(true, false) {
		close(m.entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.Store.Acquire(ctx, id, owner, ttl)
}

var _ = Describe("Stopping for good and for now", func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("agent", enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "hang"}, Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)},
			enginetest.Say("echo: {{.Last.Content}}")))
	})
	hanging := func(ctx context.Context) string {
		GinkgoHelper()
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "hang")
		Eventually(func() store.RunStatus {
			r, err := w.Store.Run(ctx, id, "")
			if err != nil {
				return ""
			}
			return r.Status
		}).Should(Equal(store.RunRunning))
		return id
	}

	It("has stopped and parked when Stop returns, and goes on with the next message", Label("MSG-08", "RUN-04"), func(ctx SpecContext) {
		e, _ := start(w)
		id := hanging(ctx)
		send(ctx, w, id, "waits")
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		Expect(lastRun(ctx, w, id)).To(HaveField("Status", store.RunStopped))
		Expect(w.Store.Thread(ctx, id)).To(HaveValue(HaveField("Parked", true)))
		Expect(w.Store.Runnable(ctx, 10)).To(BeEmpty())
		e.Wake(id) // finds nothing that it may take
		send(ctx, w, id, "next")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: hang", "assistant: (stopped by user)", "user: waits", "user: next", "assistant: echo: next"}))
		Expect(w.Runs(ctx, id)).To(HaveLen(2))
	})

	It("stops a run that another replica is at", Label("RUN-04", "THR-12"), func(ctx SpecContext) {
		start(w)
		id := hanging(ctx)
		other, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Stop(ctx, id, "from elsewhere")).To(Succeed())
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Message", "from elsewhere")))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: hang", "assistant: (stopped by user)"}))
		send(ctx, w, id, "next")
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(HaveLen(2))
		rest(ctx, w, id)
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("is no failure for two who stop a run that waits at the same time", Label("RUN-04"), func(ctx SpecContext) {
		w.Definitions.Put("waits", enginetest.Builtin(skeinv1.BuiltinWait), enginetest.Script(enginetest.Call("wait", map[string]any{"delayMs": 3600_000})))
		met := &meeting{Store: w.Store, entered: make(chan struct{})}
		e, _ := start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(met), hour }) // no sweep takes it up
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		Eventually(lastRunOr).WithArguments(ctx, w, id).Should(HaveField("Status", store.RunWaiting))
		Eventually(func() int { running, _ := e.Load(); return running }).Should(BeZero(), "it is let go of")
		met.armed.Store(true)
		first := make(chan error, 1)
		go func() { first <- e.Stop(ctx, id, "first") }()
		Eventually(met.entered).Should(BeClosed())
		Expect(e.Stop(ctx, id, "second")).To(Succeed())
		Eventually(first).Should(Receive(BeNil()))
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Message", "second")))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->wait", "assistant: (stopped by user)"}))
	})

	It("clears a conversation in the middle of a run, which leaves nothing behind", Label("THR-06"), func(ctx SpecContext) {
		e, _ := start(w)
		id := hanging(ctx)
		send(ctx, w, id, "waits")
		Expect(e.Destroy(ctx, id)).To(Succeed())
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", "Destroyed")))
		send(ctx, w, id, "fresh")
		Eventually(func() ([]store.Run, error) { return w.Runs(ctx, id) }).Should(HaveLen(2))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: fresh", "assistant: echo: fresh"}))
	})

	It("tells the parent that waits when the conversation of a child is cleared", Label("THR-06", "SUB-04"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{
				Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true,
				ParentCommunication: skeinv1.CommunicationImplicit,
			}}
		}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "x"}), enginetest.Say("saw {{.Last.Content}}")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		var child string
		Eventually(func(g Gomega) {
			children, err := w.Store.Children(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(children).To(HaveLen(1))
			child = children[0].ID
			r, err := w.Store.Run(ctx, child, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Status).To(Equal(store.RunRunning))
		}).Should(Succeed())
		Expect(e.Destroy(ctx, child)).To(Succeed())
		rest(ctx, w, id)
		lines := told(ctx, w, id)
		Expect(lines[len(lines)-1]).To(ContainSubstring("was destroyed before it gave a result"))
	})
})
