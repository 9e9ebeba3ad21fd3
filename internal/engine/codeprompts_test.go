package engine_test

import (
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A prompt that code calls", Label("AGT-05", "TOL-01"), func() {
	// log gives the whole log: "role: content", behind a '>' for each prompt that it is within.
	log := func(ctx SpecContext, w *enginetest.World, id string) (out []string) {
		GinkgoHelper()
		page, err := w.Store.Messages(ctx, id, store.MessageQuery{Order: "asc", AllDepths: true, IncludeSilent: true, Limit: 100})
		Expect(err).NotTo(HaveOccurred())
		for _, m := range page.Messages {
			line := strings.Repeat(">", m.Depth) + string(m.Role)
			for _, c := range m.ToolCalls {
				line += " ->" + c.Name
			}
			if m.Content != nil {
				line += ": " + *m.Content
			}
			out = append(out, line)
		}
		return out
	}
	step := func(role string, s skeinv1.ScriptStep) skeinv1.ScriptStep {
		s.When, s.Times = &skeinv1.ScriptMatch{Role: role}, new(int32) // by what is in the conversation alone
		return s
	}

	newWorld := func() *enginetest.World {
		w := newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Minute, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		return w
	}

	rest := func(ctx SpecContext, w *enginetest.World, id string) store.Run {
		GinkgoHelper()
		Eventually(w.Resting).WithContext(ctx).WithArguments(id).Should(BeTrue()) // it is more than others do
		return lastRun(ctx, w, id)
	}

	It("works within the run, while the code goes on with tools of its own", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("writer", func(a *definition.Agent) { a.A.Prompt.Spec.ParallelToolCalls = true },
			enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Builtin(skeinv1.BuiltinWait),
			codeTool("brief", `export default async (state, { about }) => {
				const ask = (message) => state.invokeTool('summarise', { message });
				const said = await Promise.all([ask('long ' + about), state.invokeTool('set_value', { key: about, value: 1 }), ask('longer ' + about), state.invokeTool('wait', { delayMs: 1 })]);
				const refused = [await ask(''), await state.invokeTool('wait', { delayMs: 1e9 }), await state.invokeTool('fails', { message: 'x' })];
				return [...said.map((r) => r.result), ...refused.map((r) => r.error.slice(0, 40)), (await state.invokeTool('plans', { message: 'x' })).result].join('; ');
			}`),
			enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinEffects), enginetest.Script(
				step("user", enginetest.Call("get_scheduled_effects", nil)), step("tool", enginetest.Say("re: {{.Arguments.message}}")))),
			enginetest.CallsPrompt("fails", skeinv1.PromptTool{}, enginetest.Script(skeinv1.ScriptStep{Error: "no idea"})),
			enginetest.CallsPrompt("plans", skeinv1.PromptTool{}, enginetest.Approved(skeinv1.BuiltinEffects, 0), enginetest.Script(
				step("user", enginetest.Call("schedule_effect", map[string]any{"name": "e"})), step("tool", enginetest.Say("{{.Last.Content}}")))),
			enginetest.Script(skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("brief", map[string]any{"about": "a"}), enginetest.ToolCall("summarise", map[string]any{"message": "short"}), enginetest.ToolCall("brief", map[string]any{"about": "b"}),
			}}, enginetest.Say("done")))
		e, _ := start(w)
		id := makeThread(ctx, w, "writer")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		of := func(about string) string {
			return "tool brief success: re: long " + about + `; {"key":"` + about + `"}; re: longer ` + about + "; the time is over; the arguments do not fit the tool's sche; wait would take 277h46m40s, longer than ; the prompt fails failed: no idea; " +
				"calls of schedule_effect have to be approved, which code cannot wait for: use queueTool, or leave it to the model. Nothing was done"
		}
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->brief ->summarise ->brief", of("a"), "tool summarise success: re: short", of("b"), "assistant: done"}))
		Expect(w.Effects.Scheduled(id)).To(BeEmpty())
		for _, about := range []string{"long a", "longer b", "short"} {
			Expect(log(ctx, w, id)).To(ContainElements(">user: "+about, ">assistant: re: "+about))
		}
		res, err := e.InvokeTool(ctx, id, "k", "summarise", []byte(`{"message":"from outside"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(ContainSubstring("queueTool"))
	})

	It("is not asked twice for what it has answered, whenever the replica dies", Label("RUN-02"), func(ctx SpecContext) {
		play := func(point string, n int) []string {
			w := newWorld()
			w.Logger = logr.Discard() // crashes are loud
			w.Definitions.Put("writer",
				codeTool("brief", `export default async (state) => {
					const one = await state.invokeTool('summarise', { message: 'one' });
					const two = await state.invokeTool('summarise', { message: 'two after ' + one.result });
					return [two.result, ...state.execution.promptPath].join();
				}`),
				enginetest.CallsPrompt("summarise", skeinv1.PromptTool{}, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
					step("user", enginetest.Call("get_value", map[string]any{"key": "k"})), step("tool", enginetest.Say("{{.Arguments.message}}!")))),
				enginetest.Script(step("user", enginetest.Call("brief", nil)), step("tool", enginetest.Say("{{.Last.Content}}"))))
			c := cutAt(w, point, n)
			_, stop := start(w, c.options)
			id := makeThread(ctx, w, "writer")
			send(ctx, w, id, "go")
			if point != "" {
				Eventually(ctx, c.cut).Should(BeClosed())
				stop()
				Expect(c.gate.Expire(ctx)).To(Succeed())
				_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			}
			defer stop()
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			return log(ctx, w, id)
		}
		want := play("", 0)
		Expect(want).To(Equal([]string{"user: go", "assistant ->brief",
			">user: one", ">assistant ->get_value", ">tool: null", ">assistant: one!",
			">user: two after one!", ">assistant ->get_value", ">tool: null", ">assistant: two after one!!",
			"tool: two after one!!,writer", "assistant: two after one!!,writer"}))
		for _, n := range []int{2, 3, 4} { // the first prompt's call, its answer, the second one's call
			Expect(play("answer.after", n)).To(Equal(want), "after a crash behind answer %d", n)
		}
		Expect(play("prompt.after", 2)).To(Equal(want), "after a crash when the second one has begun")
	}, NodeTimeout(manyPlays))
})
