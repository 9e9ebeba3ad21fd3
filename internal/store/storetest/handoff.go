package storetest

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeHandoff(e *env) {
	Describe("handing a thread over", Label("AGT-03"), func() {
		agents := func(ctx SpecContext, id string) []string {
			t := e.info(ctx, id)
			return []string{t.OriginAgent, t.DeclaredAgent, t.Agent}
		}

		It("changes the agent, keeps the first one, and logs who did it", func(ctx SpecContext) {
			id := e.thread(ctx)
			op := &store.Handoff{Agent: "billing", By: store.HandoffByTool, RunID: "r", ToolCallID: "call-1"}
			e.apply(ctx, id, op)
			Expect([]any{op.From, op.Done}).To(Equal([]any{"helper", true}))
			Expect(agents(ctx, id)).To(Equal([]string{"helper", "helper", "billing"}))
			events, err := e.store.Events(ctx, id, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(events).To(HaveExactElements(And(HaveField("Type", store.EventHandoff), HaveField("RunID", "r"),
				HaveField("Data", MatchJSON(`{"from":"helper","to":"billing","by":"tool","toolCallId":"call-1"}`)))))
		})

		It("changes nothing for the agent that has the thread", func(ctx SpecContext) {
			id := e.thread(ctx)
			op := &store.Handoff{Agent: "helper", By: store.HandoffBySpec, Declared: true}
			e.apply(ctx, id, op)
			Expect(op.Done).To(BeFalse())
			t := e.info(ctx, id)
			Expect([]int64{t.Version, t.LastSeq}).To(Equal([]int64{0, 0}))
		})

		It("keeps the declared agent apart from the current one", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.Handoff{Agent: "sales", By: store.HandoffBySpec, Declared: true})
			Expect(agents(ctx, id)).To(Equal([]string{"helper", "sales", "sales"}))
			e.apply(ctx, id, &store.Handoff{Agent: "billing", By: store.HandoffByTool})
			Expect(agents(ctx, id)).To(Equal([]string{"helper", "sales", "billing"}))
			same := &store.Handoff{Agent: "billing", By: store.HandoffBySpec, Declared: true}
			e.apply(ctx, id, same)
			Expect(same.Done).To(BeFalse(), "it has the thread already")
			Expect(agents(ctx, id)).To(Equal([]string{"helper", "billing", "billing"}))
		})
	})
}
