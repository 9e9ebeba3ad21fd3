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
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A call whose result is removed while its run goes on", Label("RUN-02", "MSG-06"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	pay := enginetest.ToolCall("schedule_effect", map[string]any{"name": "pay"})
	set := enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})
	says := enginetest.Say("re: {{.Last.Content}}")
	// remove deletes the newest result of a tool.
	remove := func(ctx context.Context, id, tool string) {
		GinkgoHelper()
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "desc", AllDepths: true, Limit: 100})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			if m.Role == store.RoleTool && m.Name == tool {
				Expect(w.Store.Apply(ctx, id, nil, &store.DeleteMessage{ID: m.ID})).To(Succeed())
				return
			}
		}
		Fail("no result of " + tool)
	}
	// parked waits until the run waits for an approval, and returns the calls that wait.
	parked := func(ctx context.Context, e *engine.Engine, id string) []approval.Call {
		GinkgoHelper()
		Eventually(func() store.RunStatus { return lastRunOrNone(ctx, w, id).Status }).WithContext(ctx).Should(Equal(store.RunWaiting))
		list, _, err := e.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		return list
	}
	decide := func(ctx context.Context, e *engine.Engine, id string, call approval.Call) {
		GinkgoHelper()
		_, err := e.Decide(ctx, id, call.ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
	}
	madeOnce := func(ctx context.Context, id string) {
		GinkgoHelper()
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(w.Effects.Calls()).To(HaveLen(1))
		for _, n := range w.Effects.Calls() {
			Expect(n).To(Equal(1), "the tool ran again")
		}
	}

	then := skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool", Tool: "schedule_effect"}, Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{set}}
	tools := enginetest.Builtin(skeinv1.BuiltinEffects, skeinv1.BuiltinKV)
	DescribeTable("is not made again", func(ctx SpecContext, point string, change ...func(*definition.Agent)) {
		w.Definitions.Put("a", append(change, tools)...)
		var id string
		var times atomic.Int32
		start(w, func(o *engine.Options) {
			o.Faults = func(p string) {
				defer GinkgoRecover()
				if p == point && times.Add(1) == 2 {
					remove(ctx, id, "schedule_effect")
				}
			}
		})
		id = makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		madeOnce(ctx, id)
		Expect(told(ctx, w, id)).NotTo(ContainElement(HavePrefix("tool schedule_effect")), "it was removed")
	},
		Entry("when that happens within the next call", "call.before", enginetest.Script(first(pay, set), says)),
		Entry("when that happens within the next call of the model", "model.before", enginetest.Script(first(pay), then, says)),
	)

	for _, restarted := range []bool{false, true} {
		text := map[bool]string{true: ", on another replica", false: ""}[restarted]

		It("is not made again when the run waits for an approval"+text, func(ctx SpecContext) {
			w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinEffects), enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(first(pay, set), says))
			e, stop := start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			calls := parked(ctx, e, id)
			Expect(calls).To(HaveLen(1))
			if restarted {
				stop()
			}
			remove(ctx, id, "schedule_effect")
			if restarted {
				e, _ = start(w)
			}
			decide(ctx, e, id, calls[0])
			madeOnce(ctx, id)
			Expect(w.Store.Value(ctx, id, "k")).To(BeEquivalentTo("1"))
		})

		It("needs no second approval"+text, func(ctx SpecContext) {
			w.Definitions.Put("a", enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(first(pay, set), says))
			e, stop := start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			calls := parked(ctx, e, id)
			Expect(calls).To(HaveLen(2))
			decide(ctx, e, id, calls[0])
			Eventually(func() []string { return told(ctx, w, id) }).WithContext(ctx).Should(ContainElement(HavePrefix("tool schedule_effect success")))
			Expect(parked(ctx, e, id)).To(HaveLen(1))
			if restarted {
				stop()
			}
			remove(ctx, id, "schedule_effect")
			if restarted {
				e, _ = start(w)
			}
			decide(ctx, e, id, calls[1])
			madeOnce(ctx, id)
			Expect(eventsOf(ctx, w, id, store.EventApprovalRequested)).To(HaveLen(2))
		})
	}

	It("is not made again by a called prompt that waits", Label("AGT-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.CallsPrompt("payer", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinEffects), enginetest.Approved(skeinv1.BuiltinKV, 0),
			enginetest.Script(first(pay, set), says)), enginetest.Script(first(enginetest.ToolCall("payer", map[string]any{"message": "go"})), says))
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		calls := parked(ctx, e, id)
		Expect(calls).To(HaveLen(1))
		remove(ctx, id, "schedule_effect")
		decide(ctx, e, id, calls[0])
		madeOnce(ctx, id)
	})

	It("is not made again after a crash that follows the removal", func(ctx SpecContext) {
		w.Definitions.Put("a", tools, enginetest.Script(first(pay, set), says))
		c := cutAt(w, "call.before", 2)
		_, stop := start(w, c.options)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		c.restOrCut(ctx, id, stop)
		remove(ctx, id, "schedule_effect")
		start(w)
		madeOnce(ctx, id)
		Expect(w.Store.Value(ctx, id, "k")).To(BeEquivalentTo("1"), "a call without a result is made")
	})

	It("is not made again for a hook that removes every result", Label("HOK-01"), func(ctx SpecContext) {
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", tools, enginetest.Script(first(pay), then, says), hook(skeinv1.HookAfterToolCallSuccess, `
			export default defineHook('after_tool_call_success', async (state, call, result) => {
				for (const m of (await state.getMessages()).messages) if (m.role === 'tool') await state.deleteMessage(m.id);
				return null;
			});`))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		madeOnce(ctx, id)
		Expect(failures(ctx, w, id)).To(BeEmpty())
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->schedule_effect", "assistant ->set_value", "assistant: re: (no result: it was removed after the call was made)"}))
	})
})
