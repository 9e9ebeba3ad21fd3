package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// counter is a model that numbers the calls of each answer from 0, as some do.
type counter struct{}

func (counter) Client(model.Config) (model.Client, error) { return counter{}, nil }

func (counter) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	if req.Messages[len(req.Messages)-1].Role == model.RoleTool {
		return &model.Response{Content: "done"}, nil
	}
	return &model.Response{ToolCalls: []model.ToolCall{
		{ID: "call_0", Name: "set_value", Arguments: `{"key":"a","value":1}`},
		{ID: "call_1", Name: "schedule_effect", Arguments: `{"name":"e"}`},
	}}, nil
}

var _ = Describe("Calls after a rollback", Label("RUN-09", "RUN-11"), func() {
	It("are others than those that were taken back, whatever ids a model gives them", func(ctx SpecContext) {
		w := newWorld()
		w.Models = counter{}
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Builtin(skeinv1.BuiltinEffects), func(a *engine.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = true
		})
		e, _ := start(w)
		id := makeThread(ctx, w, "agent")
		waiting := func(runs int) engine.Approval {
			GinkgoHelper()
			var list []engine.Approval
			Eventually(func(g Gomega) {
				g.Expect(w.Runs(ctx, id)).To(HaveLen(runs))
				g.Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunWaiting))
				var err error
				list, err = e.Approvals(ctx, id)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(list).To(HaveLen(1))
			}, "10s", "5ms").Should(Succeed())
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
		Expect(err).To(BeAssignableToTypeOf(&engine.UnknownError{}))
		_, err = e.Decide(ctx, id, second.ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})
})
