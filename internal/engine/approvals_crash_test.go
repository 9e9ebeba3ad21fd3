package engine_test

import (
	"context"
	"errors"
	"fmt"
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

var _ = Describe("A crash of a run with approvals and a wait", Label("RUN-02", "RUN-11"), func() {
	// play holds a conversation whose calls are approved and refused from outside while the engine is cut off its store
	// when it comes to a point for the n-th time. It gives how often each point was come to, and what was said.
	play := func(ctx SpecContext, point string, n int, parallel bool) (points map[string]int, transcript []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		w.Definitions.Put("agent", enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Builtin(skeinv1.BuiltinWait), func(a *definition.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = parallel
		}, enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "one"}),
				enginetest.ToolCall("wait", map[string]any{"delayMs": 1}),
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "refused"}),
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "two"}),
			}},
			enginetest.Say("re: {{.Last.Content}}")))
		c := cutAt(w, point, n)
		_, stop := start(w, c.options)
		people, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		decide := func(until func() bool) {
			for ctx.Err() == nil && !until() {
				list, _, err := people.Approvals(ctx, id, approval.Page{})
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					Expect(err).NotTo(HaveOccurred())
				}
				for i := range list {
					a := &list[len(list)-1-i] // the last one first
					if a.Decision == nil {
						_, err := people.Decide(ctx, id, a.ToolCallID, store.Approval{Approved: !isRefused(a), By: "ada"})
						var gone *definition.UnknownError
						if !errors.As(err, &gone) { // it was taken over between the look and the decision
							Expect(err).NotTo(HaveOccurred())
						}
					}
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		rested := func(ctx context.Context) bool { r, err := w.Resting(ctx, id); return err == nil && r }
		Eventually(func() bool { return c.gate.IsCut() || lastRunOrNone(ctx, w, id).Status == store.RunWaiting }).Should(BeTrue(), "nobody decides before it waits")
		decide(func() bool { return c.gate.IsCut() || rested(ctx) })
		stop()
		Expect(c.gate.Expire(ctx)).To(Succeed())
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		decide(func() bool { return rested(ctx) })
		names := map[string]int{}
		for _, s := range w.Effects.Scheduled(id) {
			names[s.Name]++
		}
		Expect(names).To(Equal(map[string]int{"one": 1, "two": 1}), "each effect once, and none that was refused")
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		decided := 0
		for _, m := range msgs {
			if m.Metadata["approval"] != nil {
				decided++
			}
			line := fmt.Sprintf("%s %s %s", m.Role, m.Name, m.ToolStatus)
			transcript = append(transcript, line)
		}
		Expect(decided).To(Equal(3), "every result tells of its decision")
		return c.reached(), transcript
	}

	for _, parallel := range []bool{false, true} {
		It(fmt.Sprintf("at any point loses and doubles nothing (parallel calls: %v)", parallel), func(ctx SpecContext) {
			points, want := play(ctx, "", 0, parallel)
			Expect(want).To(HaveLen(7))
			for _, p := range []string{"approval.before", "approval.after", "intake.after", "call.before", "call.after", "result.before", "result.after", "park.before", "park.after", "finish.before"} {
				Expect(points).To(HaveKey(p))
			}
			reaches("approvals", points)
			atEachPoint(points, each, func(point string, n int) {
				_, got := play(ctx, point, n, parallel)
				if parallel { // who comes first is open
					Expect(got).To(ConsistOf(want), "after a crash at %s for the %d. time", point, n)
				} else {
					Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
				}
			})
		}, NodeTimeout(manyPlays))
	}
})

func isRefused(a *approval.Call) bool { return a.Arguments == `{"name":"refused"}` }
