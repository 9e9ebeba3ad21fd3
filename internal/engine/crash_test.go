package engine_test

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// effectID is the id of a scheduled effect in the result of its call.
var effectID = regexp.MustCompile(`("id":")[^"]*`)

// The crash tests cut an engine off its store at one point of a conversation, as SIGKILL would, and let the
// next engine go on. They do so at every point that there is, one after the other.
var _ = Describe("A crash", Label("RUN-02"), func() {
	// play holds a conversation with tools, effects and a child, cutting the engine off when it comes to a
	// point for the n-th time. It gives how often each point was come to.
	play := func(ctx SpecContext, point string, n int, parallel bool) (points map[string]int, transcript []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		// The script goes by what is in the conversation, so that a doubled or lost message changes its course.
		w.Definitions.Put("child", enginetest.Builtin(skeinv1.BuiltinEffects), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "by-child"})}},
			enginetest.Say("child says {{len .Arguments}}")))
		w.Definitions.Put("parent", enginetest.Builtin(skeinv1.BuiltinEffects, skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.A.Prompt.Spec.ParallelToolCalls = parallel
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true, MaxInstances: 1}}
		}, enginetest.Script(
			skeinv1.ScriptStep{Content: "first", ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "one"}),
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "two"}),
			}},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool"}, ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("schedule_effect", map[string]any{"name": "three"}),
				enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "help"}),
			}},
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Role: "tool", Tool: "subagent_create"}, Content: `got: {{toolResult "subagent_create"}}`},
			enginetest.Say("re: {{.Last.Content}}")))

		c := cutAt(w, point, n)
		id := makeThread(ctx, w, "parent")
		w.Models = patient{w.Models, "child", func(ctx context.Context) bool { // its parent is parked by then
			r := lastRunOr(ctx, w, id)
			return r.Status == store.RunWaiting || r.Status.Ended()
		}}
		_, stop := start(w, c.options)
		send(ctx, w, id, "go")
		c.restOrCut(ctx, id, stop)
		before := recorded(ctx, w, id)
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		rest(ctx, w, id)
		send(ctx, w, id, "thanks")
		rest(ctx, w, id)
		check(ctx, w, id, before)
		for _, line := range told(ctx, w, id) {
			transcript = append(transcript, effectID.ReplaceAllString(line, "$1")) // the ids are new each time
		}
		return c.reached(), transcript
	}

	for _, parallel := range []bool{false, true} {
		It(fmt.Sprintf("at any point loses and doubles nothing (parallel calls: %v)", parallel), func(ctx SpecContext) {
			points, want := play(ctx, "", 0, parallel)
			Expect(want).To(HaveLen(10))
			reaches("conversation", points)
			atEachPoint(points, each, func(point string, n int) {
				_, got := play(ctx, point, n, parallel)
				Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
			})
		}, NodeTimeout(manyPlays))
	}
})

// recorded gives, of the calls whose results are in the log, how often they were executed.
func recorded(ctx context.Context, w *enginetest.World, id string) map[string]int {
	GinkgoHelper()
	children, err := w.Store.Children(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	executed, out := w.Effects.Calls(), map[string]int{}
	for _, t := range append(children, store.Thread{ID: id}) {
		msgs, err := w.Messages(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())
		for _, m := range msgs {
			if n, ok := executed[t.ID+"/"+m.ToolCallID]; ok {
				out[t.ID+"/"+m.ToolCallID] = n
			}
		}
	}
	return out
}

// check holds what must be true after every crash: each call has one result, each effect was scheduled
// once, a call was executed again only where its result had not been recorded, and there is one child.
func check(ctx context.Context, w *enginetest.World, id string, before map[string]int) {
	GinkgoHelper()
	children, err := w.Store.Children(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	Expect(children).To(HaveLen(1))
	total := 0
	for _, thread := range []string{id, children[0].ID} {
		msgs, err := w.Messages(ctx, thread)
		Expect(err).NotTo(HaveOccurred())
		calls, results := map[string]int{}, map[string]int{}
		for _, m := range msgs {
			for _, c := range m.ToolCalls {
				calls[c.ID]++
			}
			if m.Role == store.RoleTool {
				results[m.ToolCallID]++
			}
		}
		Expect(results).To(Equal(calls), "one result for each call")
		for _, n := range calls {
			Expect(n).To(Equal(1))
		}
		total += len(w.Effects.Scheduled(thread))
	}
	Expect(total).To(Equal(4), "effects")
	executed := w.Effects.Calls()
	for cause, n := range executed {
		Expect(n).To(BeNumerically("<=", 2), cause)
	}
	for cause, n := range before {
		Expect(executed).To(HaveKeyWithValue(cause, n), "a call whose result was recorded must not be executed again")
	}
}

// pause waits without being a reason to fail.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
