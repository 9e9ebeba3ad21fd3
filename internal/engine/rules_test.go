package engine_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The rules of a side", Label("AGT-01"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	side := func(change func(*skeinv1.AgentSide)) func(*definition.Agent) {
		return func(a *definition.Agent) { change(&a.A.Spec) }
	}

	It("goes on after a plain answer when stopOnResponse is false, until the stop tool", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV),
			side(func(s *skeinv1.AgentSide) {
				s.StopOnResponse, s.StopTool, s.StopToolResponseProperty = ptr.To(false), "set_value", "value"
			}),
			enginetest.Script(
				skeinv1.ScriptStep{Content: "thinking"},
				enginetest.Call("set_value", map[string]any{"key": "k", "value": "the answer"}),
				enginetest.Say("never reached")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant: thinking",
			"assistant ->set_value", ContainSubstring("tool set_value success"), "assistant: the answer"))
	})

	It("does not end on a stop tool whose call failed", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV),
			side(func(s *skeinv1.AgentSide) { s.StopTool = "set_value" }),
			enginetest.Script(
				enginetest.Call("set_value", map[string]any{"key": ""}),
				enginetest.Call("set_value", map[string]any{"key": "k", "value": 1}),
				enginetest.Say("never reached")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Steps).To(Equal(2))
		Expect(told(ctx, w, id)[2]).To(ContainSubstring("tool set_value error: the arguments do not fit the tool's schema"))
	})

	It("ends a session by its tools, with the text they carry", func(ctx SpecContext) {
		for _, kind := range []string{"finish", "give_up"} {
			w.Definitions.Put("a",
				side(func(s *skeinv1.AgentSide) {
					s.SessionStop = &skeinv1.SessionTool{Name: "finish"}
					s.SessionFail = &skeinv1.SessionTool{Name: "give_up", MessageProperty: "why"}
				}),
				enginetest.Script(enginetest.Call(kind, map[string]any{"message": "all done", "why": "no way"}), enginetest.Say("never")))
			_, stop := start(w)
			id := makeThread(ctx, w, "a")
			send(ctx, w, id, "go")
			r := rest(ctx, w, id)
			lines := told(ctx, w, id)
			if kind == "finish" {
				Expect(r.Status).To(Equal(store.RunSucceeded))
				Expect(lines[len(lines)-1]).To(Equal("assistant: all done"))
			} else {
				Expect(r).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonSessionFailed), HaveField("Message", "no way")))
				Expect(lines[len(lines)-1]).To(Equal("assistant: no way"))
			}
			stop()
		}
	})

	It("stops at maxSteps with a reason", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), side(func(s *skeinv1.AgentSide) { s.MaxSteps = 3 }),
			enginetest.Script(skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("get_value", map[string]any{"key": "k"})}}))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonMaxStepsReached), HaveField("Steps", 3)))
		lines := told(ctx, w, id)
		Expect(lines[len(lines)-1]).To(HavePrefix("assistant: (error: the turn made 3 model calls"))
	})

	It("offers no tools with toolChoice none, and passes required on", func(ctx SpecContext) {
		seen := &recorder{answer: "ok"}
		w.Models = seen
		for _, choice := range []string{"none", "required"} {
			w.Definitions.Put(choice, enginetest.Builtin(skeinv1.BuiltinKV), func(a *definition.Agent) { a.A.Prompt.Spec.ToolChoice = choice })
		}
		start(w)
		for _, choice := range []string{"none", "required"} {
			id := makeThread(ctx, w, choice)
			send(ctx, w, id, "go")
			rest(ctx, w, id)
		}
		Expect(seen.requests()[0].Tools).To(BeEmpty())
		Expect(seen.requests()[1].Tools).To(HaveLen(2))
		Expect(seen.requests()[1].ToolChoice).To(Equal(model.ToolChoiceRequired))
	})
})

var _ = Describe("Tool calls", Label("TOL-02"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	It("records what was wrong with a call and goes on", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinFiles, skeinv1.BuiltinKV), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				{Name: "read_file", RawArguments: `{"path": 7}`},
				{Name: "read_file", RawArguments: `{"path": `},
				{Name: "read_file", RawArguments: `["a"]`},
				{Name: "no_such_tool"},
				{Name: "read_file", RawArguments: `{"path":"/none"}`},
				{Name: "read_file", RawArguments: `{"path":"/../etc/passwd"}`},
			}},
			enginetest.Say("sorry")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)[2:]).To(HaveExactElements(
			"tool read_file error: the arguments do not fit the tool's schema: /path: got number, want string. Call the tool again with these corrected",
			ContainSubstring("the arguments are not valid JSON"),
			ContainSubstring("the arguments are not a JSON object"),
			"tool no_such_tool error: there is no tool \"no_such_tool\": call one of read_file, write_file, list_files, delete_file, find_files, grep_files, get_value, set_value",
			ContainSubstring("there is no file /none"),
			ContainSubstring("leads out of its folder"),
			"assistant: sorry"))
	})

	It("keeps the order of the calls in the results when they run at once", func(ctx SpecContext) {
		var steps []skeinv1.ScriptToolCall
		for i := range 12 {
			steps = append(steps, enginetest.ToolCall("set_value", map[string]any{"key": fmt.Sprint(i), "value": i}))
		}
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), func(a *definition.Agent) { a.A.Prompt.Spec.ParallelToolCalls = true },
			enginetest.Script(skeinv1.ScriptStep{ToolCalls: steps}, enginetest.Say("done")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs).To(HaveLen(15))
		for i, call := range msgs[1].ToolCalls {
			Expect(msgs[2+i].ToolCallID).To(Equal(call.ID))
		}
	})

	It("gives calls ids of their own when a provider repeats them", func(ctx SpecContext) {
		w.Models = repeater{}
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		seen := map[string]bool{}
		for _, m := range msgs {
			for _, c := range m.ToolCalls {
				Expect(seen).NotTo(HaveKey(c.ID))
				seen[c.ID] = true
			}
		}
		Expect(seen).To(HaveLen(4))
	})

	It("runs a queued tool as if the model had asked for it", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(enginetest.Say(`It is {{toolResult "get_value"}}.`)))
		start(w)
		id := makeThread(ctx, w, "a")
		Expect(w.Store.Apply(ctx, id, nil,
			&store.PutValue{Key: "k", Value: enginetest.JSON("here")},
			&store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(
				store.QueuedTool{Name: "get_value", Arguments: enginetest.JSON(map[string]any{"key": "k"})})}},
		)).To(Succeed())
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(told(ctx, w, id)).To(Equal([]string{"assistant ->get_value", `tool get_value success: "here"`, "assistant: It is here."}))
	})

	It("refuses to run a prompt whose tools have one name", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV, skeinv1.BuiltinKV), enginetest.Script(enginetest.Say("x")))
		start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id)).To(And(HaveField("Reason", skeinv1.ReasonInvalidTools), HaveField("Message", ContainSubstring("rename one"))))
	})
})
