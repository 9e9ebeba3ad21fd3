package engine_test

import (
	"strings"
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

// These crashes cut a run off while a called prompt is at work or waits for a person, and while the conversation passes to
// another agent.
var _ = Describe("A crash within a called prompt, or at a handoff", Label("RUN-02", "RUN-11", "AGT-03", "AGT-05"), func() {
	play := func(ctx SpecContext, point string, n int) (points map[string]int, transcript []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		schedule := func(name string) skeinv1.ScriptStep {
			return enginetest.Call("schedule_effect", map[string]any{"name": name})
		}
		again := func(s skeinv1.ScriptStep, role, tool, matches string) skeinv1.ScriptStep {
			s.When, s.Times = &skeinv1.ScriptMatch{Role: role, Tool: tool, Matches: matches}, new(int32)
			return s
		}
		// Scripts go by what is in the conversation, so that a doubled or lost message changes their course.
		w.Definitions.Put("triage", enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Script(
			again(schedule("within"), "user", "", ""), again(skeinv1.ScriptStep{Content: "short"}, "tool", "", ""))),
			enginetest.Calls(definition.CalledAgent{ObjectName: "billing"}), enginetest.Script(
				again(enginetest.Call("summarise", map[string]any{"message": "long"}), "user", "", ""),
				again(enginetest.Call("billing", map[string]any{}), "tool", "summarise", "^short$")))
		w.Definitions.Put("billing", enginetest.Builtin(skeinv1.BuiltinEffects), enginetest.Script(
			again(schedule("after"), "tool", "billing", ""), again(skeinv1.ScriptStep{Content: "paid"}, "tool", "schedule_effect", ""),
			enginetest.Say("re: {{.Last.Content}}")))
		c := cutAt(w, point, n)
		_, stop := start(w, c.options)
		people, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "go")
		approve := func(until func() bool) {
			for ctx.Err() == nil && !until() {
				if r := lastRunOrNone(ctx, w, id); r.Status == store.RunWaiting { // a call can be decided on only once the run waits
					list, _, err := people.Approvals(ctx, id, approval.Page{})
					Expect(err).NotTo(HaveOccurred())
					for _, a := range list {
						if a.Decision == nil {
							_, err := people.Decide(ctx, id, a.ToolCallID, store.Approval{Approved: true, By: "ada"})
							Expect(err).NotTo(HaveOccurred())
						}
					}
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		rested := func() bool { r, err := w.Resting(ctx, id); return err == nil && r }
		approve(func() bool { return c.gate.IsCut() || rested() })
		stop()
		Expect(c.gate.Expire(ctx)).To(Succeed())
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		approve(rested)
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "asc", AllDepths: true, IncludeSilent: true, Limit: 100})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			line := strings.Repeat(">", m.Depth) + string(m.Role) + " " + m.Name
			for _, c := range m.ToolCalls {
				line += " ->" + c.Name
			}
			if m.Content != nil && m.Name != "schedule_effect" {
				line += ": " + *m.Content
			}
			transcript = append(transcript, line)
		}
		Expect(w.Effects.Scheduled(id)).To(HaveLen(2))
		for cause, n := range w.Effects.Calls() {
			Expect(n).To(BeNumerically("<=", 2), cause)
		}
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range events {
			if e.Type == store.EventHandoff {
				transcript = append(transcript, e.Type)
			}
		}
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(And(HaveField("Agent", "billing"), HaveField("Status", store.RunSucceeded))))
		return c.reached(), transcript
	}

	It("loses and doubles nothing", func(ctx SpecContext) {
		points, want := play(ctx, "", 0)
		Expect(want).To(Equal([]string{"user : go", "assistant  ->summarise", ">user : long", ">assistant  ->schedule_effect", ">tool schedule_effect", ">assistant : short",
			"tool summarise: short", "assistant  ->billing", "tool billing: The conversation passes to the agent billing, which goes on from here.",
			"assistant  ->schedule_effect", "tool schedule_effect", "assistant : paid", store.EventHandoff}))
		Expect(points).To(And(HaveKey("prompt.before"), HaveKey("prompt.after"), HaveKey("handoff.before"), HaveKey("handoff.after"), HaveKey("approval.after"), HaveKey("park.after")))
		reaches("prompts", points)
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(ctx, point, n)
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})
