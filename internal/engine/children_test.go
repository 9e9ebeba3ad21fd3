package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Subagents", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	subagents := func(list ...skeinv1.AgentSubagent) func(*definition.Agent) {
		return func(a *definition.Agent) {
			a.Spec.Subagents = list
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
		}
	}
	kind := func(blocking, resumable bool) skeinv1.AgentSubagent {
		return skeinv1.AgentSubagent{
			Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: blocking, Resumable: resumable,
			ParentCommunication: skeinv1.CommunicationImplicit, MaxInstances: 10,
		}
	}
	create := func(message string) skeinv1.ScriptToolCall {
		return enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": message})
	}
	childOf := func(ctx SpecContext, id string) store.Thread {
		GinkgoHelper()
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(1))
		return children[0]
	}

	It("gives a blocking child's result as the result of the call, holding nothing while it waits", Label("SUB-01", "SUB-02", "SUB-04"), func(ctx SpecContext) {
		var seen atomic.Bool
		w.Models = patient{w.Models, "child", func(context.Context) bool { return seen.Load() }}
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("{{.Last.Content}} checked")))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("figures")}},
			enginetest.Say(`The helper says: {{toolResult "subagent_create"}}.`)))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() store.RunStatus {
			r, err := w.Store.Run(ctx, id, "")
			if err != nil {
				return ""
			}
			return r.Status
		}).Should(Equal(store.RunWaiting))
		// Nothing is held: another replica could take the thread now.
		Eventually(func() error {
			f, err := w.Store.Acquire(ctx, id, "somebody", hour)
			if err == nil {
				err = w.Store.Release(ctx, f)
			}
			return err
		}).Should(Succeed())
		seen.Store(true)
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create",
			"tool subagent_create success: figures checked", "assistant: The helper says: figures checked."}))
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1))
		c := childOf(ctx, id)
		Expect(c.TerminatedReason).To(Equal(skeinv1.ReasonSessionEnded), "it is not resumable")
		Expect(c.RegistryStatus).To(Equal("completed"))
	})

	It("does not make a child twice when the store fails right afterwards", Label("SUB-03"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("one")}}, enginetest.Say("done")))
		id := makeThread(ctx, w, "parent")
		flaky := &flakyStore{Store: w.Store, of: id}
		start(w, func(o *engine.Options) {
			o.Threads = w.Over(flaky)
			o.Faults = func(p string) {
				if p == "child.create.after" {
					flaky.failures.CompareAndSwap(0, 1)
				}
			}
		})
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create", "tool subagent_create success: re: one", "assistant: done"}))
		Expect(flaky.failures.Load()).To(BeNumerically("<", 0), "it did fail")
		childOf(ctx, id)
	})

	It("waits for all blocking children of one step together", Label("SUB-02"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("one"), create("two"), create("three")}},
			enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(ConsistOf("user: go", "assistant ->subagent_create ->subagent_create ->subagent_create",
			"tool subagent_create success: re: one", "tool subagent_create success: re: two", "tool subagent_create success: re: three", "assistant: done"))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(3))
	})

	It("gives the result of a child that does not block as a silent message that starts a run", Label("SUB-02", "SUB-04"), func(ctx SpecContext) {
		var id string
		w.Models = patient{w.Models, "child", func(ctx context.Context) bool { return lastRunOr(ctx, w, id).Status.Ended() }}
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("found it")))
		w.Definitions.Put("parent", subagents(kind(false, true)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("search")}},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, Content: "I have asked."},
			enginetest.Say("News: {{.Last.Content}}")))
		id = makeThread(ctx, w, "parent")
		start(w)
		send(ctx, w, id, "go")
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		rest(ctx, w, id)
		c := childOf(ctx, id)
		Expect(c.TerminatedAt).To(BeZero(), "it is resumable")
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->subagent_create", ContainSubstring(c.Reference), "assistant: I have asked.",
			fmt.Sprintf("user: [subagent helper (%s) completed]\nfound it", c.Reference), HavePrefix("assistant: News: ")))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[4]).To(And(HaveField("Silent", true), HaveField("Metadata", And(
			HaveKeyWithValue("subagent_id", c.Reference), HaveKeyWithValue("status_kind", "completed")))))
		Expect(w.ChildLife(ctx, id)).To(Equal([]string{"created", "completed"}))
	})

	It("messages a resumable child again and waits for it", Label("SUB-03"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(enginetest.Say("re: {{.Last.Content}}")))
		w.Definitions.Put("parent", subagents(kind(true, true)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("one")}},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "user"}, ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("subagent_message", map[string]any{"reference": "{{.Arguments.ref}}", "message": "two"})}},
			enginetest.Say("{{.Last.Content}}")))
		start(w)
		// The reference is derived from the call, which the script numbers.
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		c := childOf(ctx, id)
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Apply(ctx, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(store.QueuedTool{
			Name: "subagent_message", Arguments: enginetest.JSON(map[string]any{"reference": c.Reference, "message": "two"})})}})).To(Succeed())
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->subagent_create", "tool subagent_create success: re: one",
			"assistant: re: one", "assistant ->subagent_message", "tool subagent_message success: re: two", "assistant: re: two"}))
		Expect(told(ctx, w, c.ID)).To(Equal([]string{"user: one", "assistant: re: one", "user: two", "assistant: re: two"}))
	})

	It("tells the parent of a child that fails, and the parent goes on", Label("SUB-04"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Error: "no idea"}))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("x")}}, enginetest.Say("never mind")))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->subagent_create",
			"tool subagent_create error: (error: no idea)", "assistant: never mind"))
		Expect(childOf(ctx, id).RegistryStatus).To(Equal("failed"))
	})

	It("frees a parent that waits for a child which is terminated", Label("SUB-08", "THR-05"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("x")}}, enginetest.Say("too bad")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() ([]store.Thread, error) { return w.Store.Children(ctx, id) }).Should(HaveExactElements(HaveField("RegistryStatus", "running")))
		c := childOf(ctx, id)
		Expect(e.Terminate(ctx, c.ID, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->subagent_create",
			fmt.Sprintf("tool subagent_create error: (the subagent %s terminated)", c.Reference), "assistant: too bad"))
		Expect(childOf(ctx, id).RegistryStatus).To(Equal("terminated"))
	})

	It("terminates every descendant with the parent, working or waiting", Label("SUB-08"), func(ctx SpecContext) {
		w.Definitions.Put("child", subagents(skeinv1.AgentSubagent{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "grandchild"}, Blocking: true}),
			enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("deeper")}}))
		w.Definitions.Put("grandchild", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("x")}}))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		var tree []string
		Eventually(func() bool {
			children, err := w.Store.Children(ctx, id)
			if err != nil || len(children) != 1 {
				return false
			}
			grand, err := w.Store.Children(ctx, children[0].ID)
			if err != nil || len(grand) != 1 || grand[0].RegistryStatus != "running" {
				return false
			}
			tree = []string{id, children[0].ID, grand[0].ID}
			return true
		}).Should(BeTrue())
		Expect(e.Terminate(ctx, id, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		for i, thread := range tree {
			t, err := w.Store.Thread(ctx, thread)
			Expect(err).NotTo(HaveOccurred())
			Expect(t.TerminatedAt).NotTo(BeZero())
			if i > 0 {
				Expect(t.TerminatedReason).To(Equal(skeinv1.ReasonParentTerminated))
				Expect(t.RegistryStatus).To(Equal("terminated"))
			}
			Eventually(func() store.RunStatus { return lastRun(ctx, w, thread).Status }).Should(Equal(store.RunTerminated))
		}
	})

	It("stops a run that waits for a child", Label("RUN-04", "MSG-08"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("x")}}, enginetest.Say("saw {{.Last.Content}}")))
		e, _ := start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() string {
			r, err := w.Store.Run(ctx, id, "")
			if err != nil {
				return ""
			}
			return string(r.Status)
		}).Should(Equal("waiting"))
		Eventually(func() error { return e.Stop(ctx, id, "enough") }).Should(Succeed())
		Eventually(func() store.RunStatus { return lastRun(ctx, w, id).Status }).Should(Equal(store.RunStopped))
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(1))
		if r, err := w.Store.Run(ctx, children[0].ID, ""); err == nil {
			Expect(r.Status).To(Equal(store.RunStopped), "the child's run ends with it")
		} else {
			Expect(children[0].TerminatedAt).NotTo(BeZero(), "or does not begin, and as nobody can say more to it, it is over")
		}
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty(), "nobody waits for what it has to say")
		send(ctx, w, id, "next")
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)[2:]).To(Equal([]string{"assistant: (stopped by user)", "user: next", "assistant: saw next"}))
	})

	It("holds children to the limits with clear errors", Label("SUB-03"), func(ctx SpecContext) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		few := kind(false, true)
		few.MaxInstances = 1
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("parent", subagents(few), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("one"), create("two")}}, enginetest.Say("done")))
		w.Definitions.Put("deep", subagents(kind(false, false)), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("one")}}, enginetest.Say("done")))
		start(w, func(o *engine.Options) { o.Limits.Depth = 1 })
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)[3]).To(ContainSubstring("error: there are 1 subagents helper at the same time, which is the limit"))
		Expect(seen.tools("parent", 0)).To(ConsistOf("subagent_create", "subagent_list", "subagent_message"))
		Expect(seen.tools("parent", 1)).To(ConsistOf("subagent_list", "subagent_message"), "the tool is hidden while it could do nothing")

		deep := makeThread(ctx, w, "deep", func(n *thread.NewThread) { n.ParentID = id })
		send(ctx, w, deep, "go")
		rest(ctx, w, deep)
		Expect(told(ctx, w, deep)[2]).To(ContainSubstring("subagents may nest 1 levels deep"))
	})

	It("offers to an agent that lists none the tools for subagents that others have attached", Label("SUB-03"), func(ctx SpecContext) {
		seen, during := &spy{factory: w.Models}, func() {}
		w.Models = patient{seen, "a", func(context.Context) bool {
			during()
			return true
		}}
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Times: new(int32), Content: "re: {{.Last.Content}}"}))
		list := enginetest.Call("subagent_list", map[string]any{})
		w.Definitions.Put("a", subagents(), enginetest.Script(list, list, skeinv1.ScriptStep{Content: "y"},
			enginetest.Call("subagent_message", map[string]any{"reference": "{{.Last.Content}}", "message": "two"}), enginetest.Say("z")))
		start(w)
		id := makeThread(ctx, w, "a")
		attach := func(cause string, resumable bool) *skeinv1.ChildStatus {
			GinkgoHelper()
			parent, err := w.Store.Thread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			k := kind(false, resumable)
			k.ParentCommunication = skeinv1.CommunicationExplicit
			made, err := w.Children.Create(ctx, parent, ports.ChildRequest{Cause: cause, Subagent: k, Message: "one"})
			Expect(err).NotTo(HaveOccurred())
			rest(ctx, w, made.ThreadID)
			return made
		}
		turn := func(text string) {
			GinkgoHelper()
			send(ctx, w, id, text)
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}
		during = sync.OnceFunc(func() {
			defer GinkgoRecover()
			attach("first", false)
		})
		turn("go")
		Expect(seen.tools("a", 0)).To(BeEmpty(), "there is none yet")
		Expect(seen.tools("a", 1)).To(ConsistOf("subagent_list"), "none of them takes messages")
		Expect(told(ctx, w, id)[4]).To(ContainSubstring(`"status":"completed"`))
		child := attach("second", true)
		turn(child.Reference)
		Expect(seen.tools("a", 3)).To(ConsistOf("subagent_list", "subagent_message"))
		Expect(told(ctx, w, id)[8]).To(HavePrefix("tool subagent_message success"))
		rest(ctx, w, child.ThreadID)
		Expect(told(ctx, w, child.ThreadID)).To(Equal([]string{"user: one", "assistant: re: one", "user: two", "assistant: re: two"}))
	})

	It("counts a registry status that the child gives itself", Label("SUB-05"), func(ctx SpecContext) {
		w.Definitions.Put("child", func(a *definition.Agent) { a.A.Spec.SessionStatus = &skeinv1.SessionTool{Name: "tell"} }, enginetest.Script(
			enginetest.Call("tell", map[string]any{"message": "halfway"}),
			skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)}))
		w.Definitions.Put("parent", subagents(kind(true, false)), enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{create("x")}}))
		start(w)
		id := makeThread(ctx, w, "parent")
		send(ctx, w, id, "go")
		Eventually(func() ([]store.Thread, error) { return w.Store.Children(ctx, id) }).Should(HaveExactElements(HaveField("RegistryStatus", "halfway")))
	})
})
