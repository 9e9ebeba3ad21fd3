package engine_test

import (
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An answer that is an argument of an approved call", Label("RUN-11", "AGT-01"), func() {
	DescribeTable("has the arguments of the approver", func(ctx SpecContext, crash string, restarts bool) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		w.Definitions.Put("a", enginetest.Approved(skeinv1.BuiltinKV, 0), func(a *definition.Agent) {
			a.A.Spec.StopTool, a.A.Spec.StopToolResponseProperty = "set_value", "value"
		}, enginetest.Script(first(enginetest.ToolCall("set_value", map[string]any{"key": "a", "value": "bad"}))))
		c := cutAt(w, crash, 1)
		_, stop := start(w, c.options)
		people, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		awaitWaiting(ctx, w, id, skeinv1.ReasonWaitingForApproval)
		list, _, err := people.Approvals(ctx, id, approval.Page{})
		Expect(err).NotTo(HaveOccurred())
		if restarts {
			stop()
		}
		_, err = people.Decide(ctx, id, list[0].ToolCallID, store.Approval{Approved: true, By: "ada", Arguments: []byte(`{"key":"b","value":"changed"}`)})
		Expect(err).NotTo(HaveOccurred())
		if crash != "" {
			c.restOrCut(ctx, id, stop)
			Expect(c.gate.IsCut()).To(BeTrue())
		}
		start(w)
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(w.Store.Value(ctx, id, "b")).To(BeEquivalentTo(`"changed"`))
		said := told(ctx, w, id)
		Expect(said[len(said)-1]).To(Equal("assistant: changed"))
	},
		Entry("when the call is made at once", "", false),
		Entry("when another replica makes the call", "", true),
		Entry("when another replica reads the result of the call", "result.after", false),
	)
})
