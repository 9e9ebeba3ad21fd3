package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// enders are the ways to end a run, each with the point right after its own write.
var enders = []struct {
	name, after string
	end         func(ctx context.Context, w *enginetest.World, e *engine.Engine, id string) error
}{
	{"a stop", "stop.after", func(ctx context.Context, _ *enginetest.World, e *engine.Engine, id string) error {
		return e.Stop(ctx, id, "enough")
	}},
	{"a cancellation", "stop.after", func(ctx context.Context, w *enginetest.World, e *engine.Engine, id string) error {
		r, err := w.Store.Run(ctx, id, "")
		if err != nil {
			return err
		}
		return e.CancelRun(ctx, id, r.ID, "enough")
	}},
	{"an interruption", "stop.after", takingPlace(skeinv1.RunPolicyInterrupt)},
	{"a rollback", "stop.after", takingPlace(skeinv1.RunPolicyRollback)},
	{"the end of the conversation", "destroy.after", func(ctx context.Context, _ *enginetest.World, e *engine.Engine, id string) error {
		return e.Destroy(ctx, id)
	}},
}

// countedReads counts how often some threads are read, and how often all children of a thread are listed.
type countedReads struct {
	store.Store
	of    sync.Map // of *atomic.Int64, by the id of the thread
	lists atomic.Int64
}

func (c *countedReads) count(id string) {
	if n, ok := c.of.Load(id); ok {
		n.(*atomic.Int64).Add(1)
	}
}

func (c *countedReads) Thread(ctx context.Context, id string) (*store.Thread, error) {
	c.count(id)
	return c.Store.Thread(ctx, id)
}

func (c *countedReads) Run(ctx context.Context, threadID, runID string) (*store.Run, error) {
	c.count(threadID)
	return c.Store.Run(ctx, threadID, runID)
}

func (c *countedReads) Inbox(ctx context.Context, id string) ([]store.InboxItem, error) {
	c.count(id)
	return c.Store.Inbox(ctx, id)
}

func (c *countedReads) Children(ctx context.Context, id string) ([]store.Thread, error) {
	c.lists.Add(1)
	return c.Store.Children(ctx, id)
}

// takingPlace has a message take the place of a run.
func takingPlace(policy skeinv1.RunPolicy) func(context.Context, *enginetest.World, *engine.Engine, string) error {
	return func(ctx context.Context, w *enginetest.World, e *engine.Engine, id string) error {
		t, err := w.Store.Thread(ctx, id)
		if err != nil {
			return err
		}
		st, err := w.Threads.Open(ctx, id)
		if err != nil {
			return err
		}
		_, err = e.Queue(ctx, st, t, thread.NewMessage{Content: ptr.To("instead")}, policy)
		return err
	}
}

var _ = Describe("Ending a run that waits for a child", Label("RUN-04", "RUN-09", "RUN-10", "SUB-04"), func() {
	var w *enginetest.World
	helper := func(agent string) func(*definition.Agent) {
		return func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{
				Name: "helper", AgentRef: skeinv1.LocalRef{Name: agent}, Description: "helps", Blocking: true, Resumable: true, ParentCommunication: skeinv1.CommunicationImplicit,
			}}
		}
	}
	create := skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "^go"}, ToolCalls: []skeinv1.ScriptToolCall{
		enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "{{ .Last.Content }}"})}, Times: ptr.To[int32](0)}
	BeforeEach(func() {
		w = newWorld()
		w.Definitions.Put("grandchild", enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "hang"}, Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)}, enginetest.Say("done")))
		w.Definitions.Put("child", enginetest.Builtin(skeinv1.BuiltinSubagents), helper("grandchild"), enginetest.Script(create, enginetest.Say("re: {{ .Last.Content }}")))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), helper("child"), enginetest.Script(create, enginetest.Say("re: {{ .Last.Content }}")))
	})
	childOf := func(g Gomega, ctx context.Context, id string) store.Thread {
		children, err := w.Store.Children(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(children).To(HaveLen(1))
		return children[0]
	}
	// waiting gives a thread whose run waits for a child that an earlier run has made, which waits for one of its own, which hangs.
	waiting := func(ctx context.Context) (id, child, grandchild string) {
		GinkgoHelper()
		id = makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		c := childOf(NewGomega(Fail), ctx, id)
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Apply(ctx, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(store.QueuedTool{
			Name: "subagent_message", Arguments: enginetest.JSON(map[string]any{"reference": c.Reference, "message": "go and hang"})})}})).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
			g.Expect(w.Store.Run(ctx, c.ID, "")).To(HaveField("Status", store.RunWaiting))
			grand, err := w.Store.Children(ctx, c.ID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(grand).To(HaveLen(2))
			for _, t := range grand {
				r, err := w.Store.Run(ctx, t.ID, "")
				g.Expect(err).NotTo(HaveOccurred())
				if !r.Status.Ended() {
					grandchild = t.ID
					g.Expect(r.Status).To(Equal(store.RunRunning))
				}
			}
			g.Expect(grandchild).NotTo(BeEmpty())
		}).Should(Succeed())
		return id, c.ID, grandchild
	}
	over := func(ctx context.Context, id string, below ...string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			for _, t := range below {
				r, err := w.Store.Run(ctx, t, "")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(r.Status).To(Equal(store.RunStopped))
				g.Expect(w.Store.Inbox(ctx, t)).To(BeEmpty())
			}
			items, err := w.Store.Inbox(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(items).NotTo(ContainElement(HaveField("Kind", store.InboxChildResult)), "nobody waits for what they have to say")
		}).Should(Succeed())
	}

	for _, by := range append(enders, struct {
		name, after string
		end         func(ctx context.Context, w *enginetest.World, e *engine.Engine, id string) error
	}{name: "a termination", end: func(ctx context.Context, _ *enginetest.World, e *engine.Engine, id string) error {
		return e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)
	}}) {
		It("reads no children that have ended or rest: "+by.name, func(ctx SpecContext) {
			reads := &countedReads{Store: w.Store}
			e, _ := start(w, func(o *engine.Options) { o.Threads = w.Over(reads) })
			id, _, _ := waiting(ctx)
			for i := range 40 {
				c := store.Thread{ID: uuid.NewString(), Namespace: enginetest.Namespace, Name: fmt.Sprint("old-", i), Agent: "child", ParentID: id, Reference: fmt.Sprint("old-", i),
					Child: &store.Child{Name: "helper", Blocking: true, Resumable: true, ToolCallID: fmt.Sprint("old-", i)}}
				_, _, err := w.Store.CreateThread(ctx, c)
				Expect(err).NotTo(HaveOccurred())
				Expect(w.Store.Apply(ctx, c.ID, nil, &store.PutRun{Run: store.Run{ID: "done", Status: store.RunSucceeded}})).To(Succeed())
				reads.of.Store(c.ID, new(atomic.Int64))
				if i%2 == 0 || by.name == "a termination" {
					Expect(w.Store.Apply(ctx, c.ID, nil, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
				}
			}
			Expect(by.end(ctx, w, e, id)).To(Succeed())
			reads.of.Range(func(old, n any) bool {
				Expect(n.(*atomic.Int64).Load()).To(BeZero(), "reads of the child %s, which does nothing", old)
				return true
			})
			Expect(reads.lists.Load()).To(BeZero(), "lists of all children")
		})
	}

	for _, by := range enders {
		It("stops the descendants although the engine crashes right after its write: "+by.name, func(ctx SpecContext) {
			// On a replica of its own, beside one that goes on.
			start(w)
			o := w.Options()
			o.Logger = logr.Discard()
			o.Faults = func(point string) {
				if point == by.after {
					panic("crash")
				}
			}
			dying, err := engine.New(o) // has not started: it takes up nothing
			Expect(err).NotTo(HaveOccurred())
			id, child, grandchild := waiting(ctx)
			Expect(func() { _ = by.end(ctx, w, dying, id) }).To(PanicWith("crash"))
			over(ctx, id, child, grandchild)
		})
	}

	It("stops the descendants although the only replica crashes right after its write", func(ctx SpecContext) {
		w.Logger = logr.Discard() // crashes are loud
		for _, by := range enders {
			c := cutAt(w, by.after, 1)
			e, stop := start(w, c.options)
			id, child, grandchild := waiting(ctx)
			// Before it has let go of the parked run, the stop request would go to its own worker, and the crash with it.
			Eventually(func() int { running, _ := e.Load(); return running }).Should(Equal(1), "the grandchild's alone")
			Expect(func() { _ = by.end(ctx, w, e, id) }).To(PanicWith("crash"))
			stop()
			Expect(c.gate.Expire(ctx)).To(Succeed())
			_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			over(ctx, id, child, grandchild)
			stop()
		}
	})

	It("stops the descendants although the run was cut off before it recorded its wait", func(ctx SpecContext) {
		_, stop := start(w)
		id, child, grandchild := waiting(ctx)
		stop()
		r, err := w.Store.Run(ctx, id, "")
		Expect(err).NotTo(HaveOccurred())
		r.Status, r.State = store.RunRunning, nil
		Expect(w.Store.Apply(ctx, id, nil, &store.PutRun{Run: *r})).To(Succeed())
		e, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		start(w)
		over(ctx, id, child, grandchild)
	})

	It("stops a run that receives the stop request together with the message that it is about", func(ctx SpecContext) {
		m := newHeld()
		w.Models = m
		w.Definitions.Put("child", enginetest.Builtin(skeinv1.BuiltinKV))
		start(w)
		id := makeThread(ctx, w, "child")
		send(ctx, w, id, "go")
		Eventually(m.asked).Should(Receive())
		Expect(w.Store.Apply(ctx, id, nil,
			&store.Enqueue{Item: store.InboxItem{Kind: store.InboxStop, Payload: enginetest.JSON(store.StopRequest{Calls: []string{"x"}})}},
			&store.Enqueue{Item: store.InboxItem{Kind: store.InboxMessage, Payload: enginetest.JSON(store.Message{
				ID: "asked", Role: store.RoleUser, Content: ptr.To("and this"), Metadata: map[string]any{"parent_tool_call_id": "x"}})}},
		)).To(Succeed())
		m.answers <- toolCall("get_value", `{"key":"k"}`)
		m.answers <- &model.Response{Content: "an answer that nobody awaits"}
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunStopped))
		Expect(m.asked).NotTo(Receive(), "no model is asked any more")
	})

	// tell has a run of a thread send its child a message, which it waits for.
	tell := func(ctx context.Context, id, reference, text string) {
		GinkgoHelper()
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Unpark: true, Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(store.QueuedTool{
			Name: "subagent_message", Arguments: enginetest.JSON(map[string]any{"reference": reference, "message": text})})}})).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting)) }).Should(Succeed())
	}

	It("keeps what the next run says to a child that has not read the last message", func(ctx SpecContext) {
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		child := childOf(NewGomega(Fail), ctx, id)
		rest(ctx, w, child.ID)
		var held *store.Fence // as by a replica that is behind
		Eventually(func() (err error) {
			held, err = w.Store.Acquire(ctx, child.ID, "elsewhere", hour)
			return err
		}).Should(Succeed())
		tell(ctx, id, child.Reference, "first")
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		tell(ctx, id, child.Reference, "second")
		Expect(w.Store.Release(ctx, held)).To(Succeed())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(ContainElement("tool subagent_message success: re: second"))
	})

	It("keeps messages that the child receives before the stop request", func(ctx SpecContext) {
		_, stop := start(w)
		id, child, _ := waiting(ctx)
		stop()
		o := w.Options()
		o.Logger = logr.Discard()
		o.Faults = func(point string) {
			if point == "stop.after" {
				panic("crash")
			}
		}
		dying, err := engine.New(o)
		Expect(err).NotTo(HaveOccurred())
		Expect(func() { _ = dying.Stop(ctx, id, "enough") }).To(PanicWith("crash"))
		send(ctx, w, child, "on your own")
		start(w)
		Expect(rest(ctx, w, child).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, child)).To(ContainElement("assistant: re: on your own"))
	})

	DescribeTable("stops a child whose thread is created afterwards", func(ctx SpecContext, resumable bool) {
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinSubagents), helper("child"), func(a *definition.Agent) { a.Spec.Subagents[0].Resumable = resumable },
			enginetest.Script(create, enginetest.Say("re: {{ .Last.Content }}")))
		late := &lateChildren{Children: w.Children}
		e, _ := start(w, func(o *engine.Options) { o.Children = late })
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func(g Gomega) { g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting)) }).Should(Succeed())
		Expect(e.Stop(ctx, id, "enough")).To(Succeed())
		late.come(ctx)
		var child store.Thread
		Eventually(func(g Gomega) {
			child = childOf(g, ctx, id)
			if resumable {
				g.Expect(child.Parked).To(BeTrue())
			} else {
				g.Expect(child.TerminatedReason).To(Equal(skeinv1.ReasonSessionEnded))
			}
		}).Should(Succeed())
		Expect(w.Runs(ctx, child.ID)).To(BeEmpty(), "it has not begun")
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
		if resumable {
			send(ctx, w, child.ID, "on your own")
			Expect(rest(ctx, w, child.ID).Status).To(Equal(store.RunSucceeded), "with what is said to it later it begins")
		}
	}, Entry("a resumable child", true), Entry("a child with one result", false))
})

// lateChildren makes the threads of children when it is told to, as a controller may that is behind.
type lateChildren struct {
	*enginetest.Children
	mu   sync.Mutex
	made []func(context.Context) error
}

// Create implements ports.Children.
func (l *lateChildren) Create(_ context.Context, parent *store.Thread, req ports.ChildRequest) (*skeinv1.ChildStatus, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, func(ctx context.Context) error {
		_, err := l.Children.Create(ctx, parent, req)
		return err
	})
	return &skeinv1.ChildStatus{Reference: req.Subagent.Name + "-later", Name: req.Subagent.Name, Blocking: req.Subagent.Blocking, Status: "pending"}, nil
}

func (l *lateChildren) come(ctx context.Context) {
	GinkgoHelper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, make := range l.made {
		Expect(make(ctx)).To(Succeed())
	}
}
