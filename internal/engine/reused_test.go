package engine_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// counter is a model that numbers the calls of each answer from 0, as some do, and notes the ids that it is shown.
type counter struct{ shown [][]string }

func (c *counter) Client(model.Config) (model.Client, error) { return c, nil }

func (c *counter) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	var calls, results []string
	for _, m := range req.Messages {
		for _, call := range m.ToolCalls {
			calls = append(calls, call.ID)
		}
		if m.Role == model.RoleTool {
			results = append(results, m.ToolCallID)
		}
	}
	if !slices.Equal(calls, results) {
		return nil, fmt.Errorf("results of %q for calls %q", results, calls)
	}
	c.shown = append(c.shown, calls)
	if req.Messages[len(req.Messages)-1].Role == model.RoleTool {
		return &model.Response{Content: "done"}, nil
	}
	return &model.Response{ToolCalls: []model.ToolCall{
		{ID: "call_0", Name: "set_value", Arguments: `{"key":"a","value":1}`},
		{ID: "call_1", Name: "schedule_effect", Arguments: `{"name":"e"}`},
	}}, nil
}

var _ = Describe("Calls", Label("RUN-02", "RUN-09", "RUN-11"), func() {
	It("are told apart from removed calls with the same id", func(ctx SpecContext) {
		w := newWorld()
		provider := &counter{}
		w.Models = provider
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Builtin(skeinv1.BuiltinEffects), func(a *definition.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = true
		})
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		waiting := func(runs int) approval.Call {
			GinkgoHelper()
			var list []approval.Call
			Eventually(func(g Gomega) {
				g.Expect(w.Runs(ctx, id)).To(HaveLen(runs))
				g.Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunWaiting))
				var err error
				list, _, err = e.Approvals(ctx, id, approval.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(list).To(HaveLen(1))
			}).Should(Succeed())
			return list[0]
		}
		send(ctx, w, id, "go")
		first := waiting(1)
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		text := "instead"
		_, err = e.Queue(ctx, st, t, thread.NewMessage{Content: &text}, skeinv1.RunPolicyRollback)
		Expect(err).NotTo(HaveOccurred())
		second := waiting(2)
		Expect(second.ToolCallID).NotTo(Equal(first.ToolCallID), "what was decided on one, or what it has caused, is not the other's")
		Expect(w.Effects.Scheduled(id)).To(HaveLen(2), "the second call is no repeat of the first")
		_, err = e.Decide(ctx, id, first.ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).To(BeAssignableToTypeOf(&definition.UnknownError{}))
		_, err = e.Decide(ctx, id, second.ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))

		By("clearing the conversation")
		Expect(e.Destroy(ctx, id)).To(Succeed())
		send(ctx, w, id, "go")
		third := waiting(3)
		Expect(third.ToolCallID).NotTo(BeElementOf(first.ToolCallID, second.ToolCallID))
		Expect(w.Effects.Scheduled(id)).To(HaveLen(3))
		Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting), "it was not decided on")
		_, err = e.Decide(ctx, id, third.ToolCallID, store.Approval{By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)

		By("checking the ids that the provider gets")
		send(ctx, w, id, "again")
		fourth := waiting(4)
		_, err = e.Decide(ctx, id, fourth.ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		shown := provider.shown[len(provider.shown)-1]
		Expect(shown).To(HaveExactElements("call_0", "call_1", fourth.ToolCallID, HavePrefix(fourth.ToolCallID[:36])), "its own ids, where they tell the calls apart")
	})

	It("are told apart from earlier calls that were recorded under the provider's ids", func(ctx SpecContext) {
		w := newWorld()
		provider := &counter{}
		w.Models = provider
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Builtin(skeinv1.BuiltinEffects), func(a *definition.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = true
		})
		start(w)
		id := makeThread(ctx, w, "agent")
		text := "before"
		Expect(w.Store.Apply(ctx, id, nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &text}},
			&store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, ToolCalls: []store.ToolCall{{ID: "call_0", Name: "get_value", Arguments: `{"key":"a"}`}}}},
			&store.AppendMessage{Message: &store.Message{Role: store.RoleTool, ToolCallID: "call_0", Name: "get_value", ToolStatus: "success", Content: &text}},
		)).To(Succeed())
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		messages, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(provider.shown[1]).To(Equal([]string{"call_0", messages[4].ToolCalls[0].ID, "call_1"}))
	})
})
