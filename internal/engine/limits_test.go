package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// spender is a model that calls a tool for ever, at a price.
type spender struct{}

func (spender) Client(model.Config) (model.Client, error) { return spender{}, nil }

func (spender) Stream(context.Context, model.Request, func(model.Delta)) (*model.Response, error) {
	return &model.Response{
		ToolCalls: []model.ToolCall{{Name: "get_value", Arguments: `{"key":"k"}`}},
		Usage:     &model.Usage{InputTokens: 80, OutputTokens: 20, Cost: 1_000_000}, // a tenth of a cent
	}, nil
}

// talker is a model that says something, at a price.
type talker struct{}

func (talker) Client(model.Config) (model.Client, error) { return talker{}, nil }

func (talker) Stream(context.Context, model.Request, func(model.Delta)) (*model.Response, error) {
	return &model.Response{Content: "and you?", Usage: &model.Usage{InputTokens: 80, OutputTokens: 20, Cost: 1_000_000}}, nil
}

var _ = Describe("Limits of a run", Label("RUN-10"), func() {
	DescribeTable("end it with a stated reason", func(ctx SpecContext, limits skeinv1.RunLimits, reason string, steps int) {
		w := newWorld()
		w.Models = spender{}
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinKV), func(a *definition.Agent) { a.Spec.Limits = &limits })
		start(w)
		id := makeThread(ctx, w, "agent")
		for range 2 { // the next run has all of it anew
			send(ctx, w, id, "go")
			r := rest(ctx, w, id)
			Expect(r).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", reason), HaveField("Steps", steps)))
			Expect(r.Message).To(ContainSubstring("limits."))
			lines := told(ctx, w, id)
			Expect(lines[len(lines)-1]).To(HavePrefix("assistant: (error: the run "))
		}
	},
		Entry("steps", skeinv1.RunLimits{MaxSteps: ptr.To[int32](3)}, skeinv1.ReasonMaxStepsReached, 3),
		Entry("tokens", skeinv1.RunLimits{MaxTokens: ptr.To[int64](250)}, skeinv1.ReasonMaxTokensReached, 3),
		Entry("cost", skeinv1.RunLimits{MaxCost: ptr.To(resource.MustParse("0.002"))}, skeinv1.ReasonMaxCostReached, 2),
		Entry("the first that is reached", skeinv1.RunLimits{MaxCost: ptr.To(resource.MustParse("1")), MaxTokens: ptr.To[int64](100)}, skeinv1.ReasonMaxTokensReached, 1),
	)

	DescribeTable("count what both sides do", Label("AGT-02"), func(ctx SpecContext, limits skeinv1.RunLimits, reason string, steps int) {
		w := newWorld()
		w.Models = talker{}
		w.Definitions.Put("pair", enginetest.Dual(), func(a *definition.Agent) { a.Spec.Limits = &limits })
		start(w)
		id := makeThread(ctx, w, "pair")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", reason), HaveField("Steps", steps)))
	},
		Entry("steps", skeinv1.RunLimits{MaxSteps: ptr.To[int32](3)}, skeinv1.ReasonMaxStepsReached, 3),
		Entry("tokens", skeinv1.RunLimits{MaxTokens: ptr.To[int64](250)}, skeinv1.ReasonMaxTokensReached, 3),
		Entry("cost", skeinv1.RunLimits{MaxCost: ptr.To(resource.MustParse("0.002"))}, skeinv1.ReasonMaxCostReached, 2),
	)

	It("end one that takes too long, in the middle of a call", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("agent", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}), func(a *definition.Agent) {
			a.Spec.Limits = &skeinv1.RunLimits{MaxDuration: &metav1.Duration{Duration: 30 * time.Minute}}
		})
		clock := clocktesting.NewFakeClock(time.Now())
		asked := make(chan struct{})
		start(w, func(o *engine.Options) {
			o.Clock, o.LeaseTTL = clock, 2*time.Hour // the lease outlives the step of the clock
			o.Faults = func(point string) {
				if point == "model.before" {
					close(asked)
				}
			}
		})
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		Eventually(asked).Should(BeClosed())
		clock.Step(time.Hour)
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonMaxDurationReached)))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant: (error: the run worked for 30m0s, which is its limit (limits.maxDuration))"))
	})

	It("do not count the time that it waits", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinWait), enginetest.Script(
			enginetest.Call("wait", map[string]any{"delayMs": 3600_000}), enginetest.Say("done")), func(a *definition.Agent) {
			a.Spec.Limits = &skeinv1.RunLimits{MaxDuration: &metav1.Duration{Duration: 30 * time.Minute}}
		})
		clock := &shifted{}
		start(w, func(o *engine.Options) { o.Clock = clock })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		Eventually(func(g Gomega) { g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting)) }).Should(Succeed())
		clock.by.Store(int64(2 * time.Hour)) // the next look finds that the time has come
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	})
})

// punctual is the real clock, by which what is overdue happens at once.
type punctual struct{ clock.RealClock }

func (punctual) AfterFunc(d time.Duration, f func()) clock.Timer {
	if d <= 0 {
		f()
	}
	return clock.RealClock{}.AfterFunc(max(d, 0), f)
}

var _ = Describe("A limit of time that is lowered while a run waits", Label("RUN-10"), func() {
	It("ends the run when it goes on", func(ctx SpecContext) {
		w := newWorld()
		limits := func(d time.Duration) {
			w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Script(
				skeinv1.ScriptStep{Latency: ms(20), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})}},
				enginetest.Say("done")), func(a *definition.Agent) {
				a.Spec.Limits = &skeinv1.RunLimits{MaxDuration: &metav1.Duration{Duration: d}}
			})
		}
		limits(time.Hour)
		e, _ := start(w, func(o *engine.Options) { o.Clock = punctual{} })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		var list []approval.Call
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
			var err error
			list, _, err = e.Approvals(ctx, id, approval.Page{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list).To(HaveLen(1))
		}).Should(Succeed())
		limits(time.Millisecond)
		_, err := e.Decide(ctx, id, list[0].ToolCallID, store.Approval{Approved: true, By: "ada"})
		Expect(err).NotTo(HaveOccurred())
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonMaxDurationReached)))
	})
})
