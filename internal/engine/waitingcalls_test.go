package engine_test

import (
	"context"
	"sync"
	"time"

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

var _ = Describe("What comes to a thread while its run waits", func() {
	// putParent defines the agent "waits", whose run makes calls after the message "go", the last of which waits for a child.
	putParent := func(w *enginetest.World, calls []skeinv1.ScriptToolCall, change ...func(*definition.Agent)) {
		w.Definitions.Put("child", enginetest.Script(skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000)}))
		child := enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "x"})
		w.Definitions.Put("waits", append(change, enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true}}
		}, enginetest.Script(first(append(calls, child)...), enginetest.Say("re: {{.Last.Content}}")))...)
	}
	begin := func(ctx context.Context, w *enginetest.World, reason string) (id string) {
		GinkgoHelper()
		id = makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		awaitWaiting(ctx, w, id, reason)
		return id
	}

	It("wakes no replica again and again when another agent is to go on", Label("AGT-03", "MSG-05"), func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("billing", enginetest.Script(enginetest.Say("Billing here.")))
		putParent(w, []skeinv1.ScriptToolCall{enginetest.ToolCall("billing", map[string]any{"message": "an invoice"})}, enginetest.Calls(definition.CalledAgent{ObjectName: "billing"}))
		e, _ := start(w)
		id := begin(ctx, w, "")
		send(ctx, w, id, "one")
		awaitQueued(ctx, w, id, 1)
		queueCall(ctx, w, id, "subagent_list", map[string]any{})
		Eventually(told).WithArguments(ctx, w, id).Should(ContainElement(HavePrefix("tool subagent_list success")))
		awaitQueued(ctx, w, id, 1)
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Stop(ctx, children[0].ID, "enough")).To(Succeed())
		Expect(rest(ctx, w, id).Agent).To(Equal("billing"))
		Expect(told(ctx, w, id)).To(ContainElements("user: one", "assistant: Billing here."))
	})

	It("has the run say that a queued call waits for an approval, and until when", Label("TOL-01", "RUN-05"), func(ctx SpecContext) {
		w := newWorld()
		putParent(w, nil, enginetest.Approved(skeinv1.BuiltinKV, hour))
		start(w)
		id := begin(ctx, w, "")
		queueCall(ctx, w, id, "set_value", map[string]any{"key": "k", "value": 1})
		awaitWaiting(ctx, w, id, skeinv1.ReasonWaitingForApproval)
		Expect(lastRun(ctx, w, id).WakeAt).NotTo(BeZero())
	})

	It("is refused for a full queue before a run has to give way to it", Label("RUN-09", "MSG-07"), func(ctx SpecContext) {
		w := newWorld()
		calls := make(chan context.Context, 1)
		var once sync.Once
		w.Models = patient{w.Models, "waits", func(call context.Context) bool {
			once.Do(func() { calls <- call })
			return false
		}}
		w.Definitions.Put("waits", enginetest.Script(enginetest.Say("hi")))
		e, _ := start(w)
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		call := <-calls
		for range 5 {
			Expect(w.Send(ctx, id, "more")).To(Succeed())
		}
		for _, policy := range []skeinv1.RunPolicy{skeinv1.RunPolicyInterrupt, skeinv1.RunPolicyRollback} {
			Expect(takingPlace(policy)(ctx, w, e, id)).To(MatchError(store.ErrQueueFull))
		}
		Expect(call.Err()).NotTo(HaveOccurred(), "the call of the model goes on")
	})

	It("is taken at once when the call that it waits for was deleted", Label("MSG-06", "RUN-11"), func(ctx SpecContext) {
		w := newWorld()
		waitKinds[1].put(w)
		start(w)
		id := begin(ctx, w, skeinv1.ReasonWaitingForApproval)
		send(ctx, w, id, "one")
		awaitQueued(ctx, w, id, 1)
		messages, err := w.Store.Messages(ctx, id, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.DeleteMessage(ctx, messages.Messages[1].ID)).To(BeTrue())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "user: one", "assistant: re: one"))
	})

	It("has a queued call made, also over a crash at any point", Label("TOL-01", "RUN-02"), func(ctx SpecContext) {
		// play queues a call while a run waits for an approval, and cuts the engine off its store when it comes to a point for the n-th time.
		play := func(point string, n int) (points map[string]int, said []string) {
			w := newWorld()
			w.Logger = logr.Discard() // crashes are loud
			w.Definitions.Put("waits", enginetest.Approved(skeinv1.BuiltinKV, 0), enginetest.Builtin(skeinv1.BuiltinFiles), func(a *definition.Agent) {
				a.A.Prompt.Spec.ParallelToolCalls = true
			}, enginetest.Script(first(enginetest.ToolCall("set_value", map[string]any{"key": "k", "value": 1})), enginetest.Say("re: {{.Last.Content}}")))
			c := cutAt(w, point, n)
			_, stop := start(w, c.options)
			id := makeThread(ctx, w, "waits")
			send(ctx, w, id, "go")
			queued := false
			waiting := func() bool { return lastRunOr(ctx, w, id).Status == store.RunWaiting }
			made := func() bool {
				said = told(ctx, w, id)
				return queued && len(said) == 4 && waiting()
			}
			await := func(until func() bool) {
				for ctx.Err() == nil && !until() {
					if !queued && waiting() {
						queueCall(ctx, w, id, "list_files", map[string]any{})
						queued = true
					}
					pause(ctx, 2*time.Millisecond)
				}
			}
			await(func() bool { return c.gate.IsCut() || made() })
			stop()
			Expect(c.gate.Expire(ctx)).To(Succeed())
			_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			defer stop()
			await(made)
			people, err := engine.New(w.Options()) // has not started: it takes up nothing
			Expect(err).NotTo(HaveOccurred())
			list, _, err := people.Approvals(ctx, id, approval.Page{})
			Expect(err).NotTo(HaveOccurred())
			Expect(list).To(HaveLen(1), "it still waits for the approval")
			return c.reached(), said
		}
		points, want := play("", 0)
		Expect(want).To(HaveExactElements("user: go", "assistant ->set_value", "assistant ->list_files", HavePrefix("tool list_files success")))
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(point, n)
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})
