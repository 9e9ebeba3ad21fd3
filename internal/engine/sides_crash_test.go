package engine_test

import (
	"regexp"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
)

// scheduled is the line of a call that has scheduled an effect.
var scheduled = regexp.MustCompile(`^(. tool schedule_effect success).*`)

var _ = Describe("A crash of a session with two sides", Label("RUN-02", "AGT-02"), func() {
	// play holds a session of four turns and another of two, cutting the engine off when it comes to a point for the n-th
	// time. It gives how often each point was come to, and what was said by whom.
	play := func(ctx SpecContext, point string, n int) (points map[string]int, transcript []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinEffects, skeinv1.BuiltinKV),
			ofSide(func(s *skeinv1.AgentSide) { s.StopTool, s.StopToolResponseProperty = "set_value", "value" }),
			enginetest.Script(
				enginetest.Call("schedule_effect", map[string]any{"name": "of-a"}),
				enginetest.Call("set_value", map[string]any{"key": "k", "value": "a's proposal"}),
				enginetest.Say("a heard [{{.Last.Content}}]")),
			enginetest.Dual(enginetest.Builtin(skeinv1.BuiltinEffects),
				ofSide(func(s *skeinv1.AgentSide) { s.SessionStop = &skeinv1.SessionTool{Name: "finish"} }),
				enginetest.Script(
					enginetest.Call("schedule_effect", map[string]any{"name": "of-b"}),
					skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, Content: "b's objection"},
					skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("finish", map[string]any{"message": "agreed on [{{.Last.Content}}]"})}})))
		c := cutAt(w, point, n)
		_, stop := start(w, c.options)
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		c.restOrCut(ctx, id, stop)
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		Expect(rest(ctx, w, id).Steps).To(Equal(6), "model calls whose answers are in the log")
		send(ctx, w, id, "thanks")
		rest(ctx, w, id)
		Expect(w.Effects.Scheduled(id)).To(HaveLen(2), "each once")
		for _, line := range sided(ctx, w, id) {
			transcript = append(transcript, scheduled.ReplaceAllString(line, "$1")) // the ids are new each time
		}
		return c.reached(), transcript
	}

	It("at any point loses and doubles nothing, and gives no side another's turn", func(ctx SpecContext) {
		points, want := play(ctx, "", 0)
		Expect(want).To(HaveExactElements("user: go",
			"a assistant ->schedule_effect", HavePrefix("a tool "), "a assistant ->set_value", HavePrefix("a tool "), "a assistant: a's proposal",
			"b assistant ->schedule_effect", HavePrefix("b tool "), "b assistant: b's objection",
			"a assistant: a heard [b's objection]",
			"b assistant ->finish", "b tool finish success: noted", "b assistant: agreed on [a heard [b's objection]]",
			"user: thanks", "a assistant: a heard [thanks]", "b assistant ->finish", "b tool finish success: noted", "b assistant: agreed on [a heard [thanks]]"))
		Expect(points).To(And(HaveKeyWithValue("turn.before", 3), HaveKeyWithValue("turn.after", 3)))
		reaches("sides", points)
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(ctx, point, n)
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})
