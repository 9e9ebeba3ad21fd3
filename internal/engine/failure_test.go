package engine_test

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// broken is a model that fails as told.
type broken struct{ err error }

func (b broken) Client(model.Config) (model.Client, error) { return b, nil }

func (b broken) Stream(context.Context, model.Request, func(model.Delta)) (*model.Response, error) {
	return nil, b.err
}

var _ = Describe("Failures", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	DescribeTable("of a model end the run with a reason, and the thread lives on", func(ctx SpecContext, err error, reason string) {
		w.Models = broken{err}
		w.Definitions.Put("a")
		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", reason), HaveField("Message", "what happened")))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs).To(HaveLen(2))
		Expect(msgs[1]).To(And(HaveField("Role", store.RoleAssistant), HaveField("Status", store.MessageFailed), HaveField("Content", ptr.To("(error: what happened)"))))
		stop()

		w.Models = &recorder{answer: "better"}
		start(w)
		send(ctx, w, id, "again")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	},
		Entry(nil, &model.Error{Kind: model.KindUnreachable, Message: "what happened"}, skeinv1.ReasonModelUnavailable),
		Entry(nil, &model.Error{Kind: model.KindTimeout, Message: "what happened"}, skeinv1.ReasonModelTimeout),
		Entry(nil, &model.Error{Kind: model.KindBadAnswer, Message: "what happened"}, skeinv1.ReasonModelBadAnswer),
		Entry(nil, &model.Error{Kind: model.KindStatus, Status: 503, Passing: true, Message: "what happened"}, skeinv1.ReasonModelUnavailable),
		Entry(nil, &model.Error{Kind: model.KindStatus, Status: 401, Message: "what happened"}, skeinv1.ReasonModelRefused),
		Entry(nil, &model.Error{Kind: model.KindFailed, Message: "what happened"}, skeinv1.ReasonModelFailed),
		Entry(nil, &model.Error{Kind: model.KindConfig, Message: "what happened"}, skeinv1.ReasonModelInvalid),
	)

	It("of a script count as played, so that the next message goes on behind them", Label("AGT-06"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(skeinv1.ScriptStep{Error: "out of order"}, enginetest.Say("fine")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		Expect(rest(ctx, w, id).Message).To(Equal("out of order"))
		send(ctx, w, id, "two")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: one", "assistant: (error: out of order)", "user: two", "assistant: fine"}))
	})

	It("by a panic fail the run, and only that", func(ctx SpecContext) {
		var armed atomic.Bool
		armed.Store(true)
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("fine")))
		start(w, func(o *engine.Options) {
			o.Faults = func(p string) {
				if p == "model.before" && armed.CompareAndSwap(true, false) {
					panic("canary-secret")
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "one")
		r := rest(ctx, w, id)
		Expect(r.Reason).To(Equal(skeinv1.ReasonInternalError))
		Expect(r.Message).NotTo(ContainSubstring("canary"))
		send(ctx, w, id, "two")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})

	It("of the store interrupt the run, which goes on when the store is back", Label("RUN-02"), func(ctx SpecContext) {
		flaky := &flakyStore{Store: w.Store}
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			enginetest.Call("get_value", map[string]any{"key": "k"}), enginetest.Say("done")))
		start(w, func(o *engine.Options) {
			o.Threads = w.Over(flaky)
			o.Faults = func(p string) {
				if p == "result.before" {
					flaky.failures.CompareAndSwap(0, 3)
				}
			}
		})
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->get_value", "tool get_value success: null", "assistant: done"}))
		Expect(flaky.failures.Load()).To(BeNumerically("<", 0), "it did fail")
	})
})

// flakyStore fails as many writes as failures says, once.
type flakyStore struct {
	store.Store
	failures atomic.Int32
	of       string // the thread whose writes fail; "" for all
}

func (f *flakyStore) Apply(ctx context.Context, id string, fence *store.Fence, ops ...store.Op) error {
	if f.failures.Load() > 0 && (f.of == "" || f.of == id) {
		if f.failures.Add(-1) == 0 {
			f.failures.Store(-1)
		}
		return store.ErrUnavailable
	}
	return f.Store.Apply(ctx, id, fence, ops...)
}
