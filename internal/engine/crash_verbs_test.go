package engine_test

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// met is a run to which a verb is applied.
type met struct {
	thread, run, call string // call is the one that waits for approval
	domain            *thread.Service
}

var scheduledOne = regexp.MustCompile(`^(tool schedule_effect success).*`)

// verbs are what people do to a run. Each can be said again by who got no answer.
var verbs = map[string]func(context.Context, *engine.Engine, met) error{
	"stop": func(ctx context.Context, e *engine.Engine, m met) error { return e.Stop(ctx, m.thread, "no") },
	"cancel": func(ctx context.Context, e *engine.Engine, m met) error {
		return e.CancelRun(ctx, m.thread, m.run, "no")
	},
	"terminate": func(ctx context.Context, e *engine.Engine, m met) error { return e.Terminate(ctx, m.thread, "no") },
	"destroy":   func(ctx context.Context, e *engine.Engine, m met) error { return e.Destroy(ctx, m.thread) },
	"interrupt": instead(skeinv1.RunPolicyInterrupt),
	"rollback":  instead(skeinv1.RunPolicyRollback),
	"approve":   decide(true),
	"refuse":    decide(false),
}

func instead(policy skeinv1.RunPolicy) func(context.Context, *engine.Engine, met) error {
	return func(ctx context.Context, e *engine.Engine, m met) error {
		st, err := m.domain.Open(ctx, m.thread)
		if err != nil {
			return err
		}
		text := "instead"
		_, err = e.Queue(ctx, st, &store.Thread{ID: m.thread}, thread.NewMessage{Content: &text, IdempotencyKey: "k"}, policy)
		return err
	}
}

func decide(approved bool) func(context.Context, *engine.Engine, met) error {
	return func(ctx context.Context, e *engine.Engine, m met) error {
		_, err := e.Decide(ctx, m.thread, m.call, store.Approval{Approved: approved, By: "ada"})
		return err
	}
}

var _ = Describe("A crash while a run is ended or a call is decided on", Label("RUN-02", "RUN-04", "RUN-09", "RUN-10", "RUN-11", "THR-05", "THR-06"), func() {
	It("after any write leaves the same result as no crash", func(ctx SpecContext) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		hanging := skeinv1.ScriptStep{Content: "late", Latency: ms(3600_000), Times: ptr.To[int32](0)}
		afterwards := skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "^instead"}, Content: "well", Times: ptr.To[int32](0)}
		effect := enginetest.ToolCall("schedule_effect", map[string]any{"name": "one"})
		w.Definitions.Put("child", enginetest.Script(hanging))
		w.Definitions.Put("speaks", enginetest.Script(afterwards, hanging))
		w.Definitions.Put("waits", enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true, Resumable: true}}
		}, enginetest.Script(afterwards, skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{
			enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "help"}), effect}}))
		w.Definitions.Put("asks", enginetest.Approved(skeinv1.BuiltinEffects, 0),
			enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{effect}}, enginetest.Say("done")))

		// meet brings a run of an agent to where it is met.
		meet := func(e *engine.Engine, agent string) (m met) {
			m.thread = makeThread(ctx, w, agent)
			send(ctx, w, m.thread, "go")
			Eventually(func(g Gomega) {
				run, err := w.Store.Run(ctx, m.thread, "")
				g.Expect(err).NotTo(HaveOccurred())
				m.run = run.ID
				if agent == "speaks" {
					g.Expect(w.Messages(ctx, m.thread)).To(HaveLen(1))
					return
				}
				g.Expect(run.Status).To(Equal(store.RunWaiting))
				calls, _, err := e.Approvals(ctx, m.thread, approval.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(calls).To(HaveLen(1))
				m.call = calls[0].ToolCallID
				for _, c := range childrenOf(ctx, w, m.thread) {
					g.Expect(w.Store.Run(ctx, c.ID, "")).To(HaveField("Status", store.RunRunning))
				}
			}).Should(Succeed())
			return m
		}
		quiet := func(m met) bool {
			rested, err := w.Resting(ctx, m.thread)
			if err != nil || !rested {
				return false
			}
			for _, c := range childrenOf(ctx, w, m.thread) {
				if rested, err := w.Resting(ctx, c.ID); err != nil || !rested {
					return false
				}
			}
			return true
		}
		// play cuts the engine off behind the n-th write since the verb began; with 0 never.
		play := func(agent, verb string, n int) (writes int, outcome []string) {
			gate := &enginetest.Gate{Store: w.Store}
			e, stop := start(w, func(o *engine.Options) { o.Threads = w.Over(gate) })
			m := meet(e, agent)
			m.domain = w.Over(gate)
			gate.CutAfter(n)
			err := verbs[verb](ctx, e, m)
			Expect(err == nil || gate.IsCut()).To(BeTrue(), "%v", err)
			Eventually(func() bool { return gate.IsCut() || quiet(m) }).Should(BeTrue())
			stop()
			writes = gate.Writes()
			Expect(gate.Expire(ctx)).To(Succeed())
			e, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			if m.domain = w.Threads; err != nil {
				Expect(verbs[verb](ctx, e, m)).To(Succeed(), "again")
			}
			Eventually(quiet).WithArguments(m).Should(BeTrue(), "%s %s after write %d: %v", agent, verb, n, told(ctx, w, m.thread))
			stop()
			outcome = left(ctx, w, m)
			idle, err := engine.New(w.Options())
			Expect(err).NotTo(HaveOccurred())
			Expect(idle.Terminate(ctx, m.thread, "done")).To(Succeed()) // what hangs is nothing for the next
			return writes, outcome
		}
		for agent, whichever := range map[string][]string{
			"speaks": {"stop", "cancel", "interrupt", "rollback", "terminate", "destroy"},
			"waits":  {"stop", "cancel", "interrupt", "rollback", "terminate"},
			"asks":   {"approve", "refuse"},
		} {
			for _, verb := range whichever {
				began := time.Now()
				writes, want := play(agent, verb, 0)
				Expect(writes).To(BeNumerically(">", 0))
				for n := 1; n <= writes; n++ {
					_, got := play(agent, verb, n)
					Expect(got).To(Equal(want), "%s while it %s, with a crash behind write %d of %d", verb, agent, n, writes)
				}
				fmt.Fprintln(GinkgoWriter, agent, verb, writes, time.Since(began), want)
			}
		}
	}, NodeTimeout(manyPlays))
})

func childrenOf(ctx context.Context, w *enginetest.World, id string) []store.Thread {
	GinkgoHelper()
	children, err := w.Store.Children(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	return children
}

// left is all that is left of a run, of those after it, and of their children.
func left(ctx context.Context, w *enginetest.World, m met) (lines []string) {
	GinkgoHelper()
	for _, c := range append([]store.Thread{{ID: m.thread}}, childrenOf(ctx, w, m.thread)...) {
		t, err := w.Store.Thread(ctx, c.ID)
		Expect(err).NotTo(HaveOccurred())
		lines = append(lines, fmt.Sprintf("thread parked=%v terminated=%q destroyed=%q registry=%q queued=%d", t.Parked, t.TerminatedReason, t.DestroyedReason, t.RegistryStatus, t.Queued))
		for _, line := range told(ctx, w, c.ID) {
			lines = append(lines, scheduledOne.ReplaceAllString(line, "$1"))
		}
		life, err := w.ChildLife(ctx, c.ID)
		Expect(err).NotTo(HaveOccurred())
		lines = append(lines, life...)
		runs, err := w.Runs(ctx, c.ID)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range runs {
			lines = append(lines, fmt.Sprintf("run %s %s", r.Status, r.Reason))
		}
		lines = append(lines, fmt.Sprintf("effects %d", len(w.Effects.Scheduled(c.ID))))
	}
	return lines
}
