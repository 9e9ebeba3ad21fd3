package engine_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An agent as a tool", func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	handoffs := func(ctx context.Context, id string) (out []string) {
		GinkgoHelper()
		events, err := w.Store.Events(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range events {
			if e.Type == store.EventHandoff {
				out = append(out, string(e.Data))
			}
		}
		return out
	}
	agentOf := func(ctx context.Context, id string) []string {
		GinkgoHelper()
		t, err := w.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		return []string{t.OriginAgent, t.DeclaredAgent, t.Agent}
	}

	It("takes the conversation over within the run, with its own prompt, tools and rules", Label("AGT-03"), func(ctx SpecContext) {
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("triage", enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Calls(definition.CalledAgent{ObjectName: "billing"}), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
				enginetest.ToolCall("billing", map[string]any{"message": "an invoice"}),
				enginetest.ToolCall("set_value", map[string]any{"key": "topic", "value": "invoice"}),
			}}))
		w.Definitions.Put("billing", enginetest.Builtin(skeinv1.BuiltinFiles), func(a *definition.Agent) {
			a.A.Spec.StopTool = "set_value" // which triage has called: a rule of billing says nothing of that
			a.A.Spec.MaxSteps = 1
		}, enginetest.Script(enginetest.Say("Billing here.")))
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "help")
		r := rest(ctx, w, id)
		Expect([]any{r.Status, r.Agent, r.Steps}).To(Equal([]any{store.RunSucceeded, "billing", 2}))
		Expect(told(ctx, w, id)).To(HaveExactElements("user: help", "assistant ->billing ->set_value",
			"tool billing success: The conversation passes to the agent billing, which goes on from here.",
			HavePrefix("tool set_value success"), "assistant: Billing here."))
		Expect(seen.tools("billing", 0)).To(ContainElement("read_file"))
		Expect(agentOf(ctx, id)).To(Equal([]string{"triage", "triage", "billing"}))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(handoffs(ctx, id)).To(HaveExactElements(MatchJSON(fmt.Sprintf(
			`{"from":"triage","to":"billing","by":"tool","toolCallId":%q}`, msgs[1].ToolCalls[0].ID))))
		send(ctx, w, id, "and again")
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(2))
		Expect(rest(ctx, w, id).Agent).To(Equal("billing"))
	})

	It("is given the conversation by a queued call too, listed by the prompt or not", Label("AGT-03", "TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("triage", enginetest.Script(enginetest.Say("triage")))
		w.Definitions.Put("billing", func(a *definition.Agent) { a.Spec.ExposeAsTool = true }, enginetest.Script(enginetest.Say("billing")))
		w.Definitions.Put("secret", enginetest.Script(enginetest.Say("secret")))
		e, _ := start(w)
		id := makeThread(ctx, w, "triage")
		Expect(e.QueueTool(ctx, id, "k", "secret", []byte(`{}`))).To(MatchError(ContainSubstring(`has no tool "secret"`)))
		Expect(e.QueueTool(ctx, id, "k", "billing", []byte(`{}`))).To(Succeed())
		Eventually(w.Runs).WithContext(ctx).WithArguments(id).Should(HaveLen(1))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("assistant ->billing", HavePrefix("tool billing success"), "assistant: billing"))
		Expect(agentOf(ctx, id)).To(Equal([]string{"triage", "triage", "billing"}))
	})

	It("is given the conversation by a call from outside at once, without a run", Label("AGT-03", "TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("triage", enginetest.Calls(definition.CalledAgent{ObjectName: "billing"}))
		w.Definitions.Put("billing")
		e, _ := start(w)
		id := makeThread(ctx, w, "triage")
		res, err := e.InvokeTool(ctx, id, "k", "billing", []byte(`{}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Content).To(ContainSubstring("passes to the agent billing"))
		Expect(agentOf(ctx, id)).To(Equal([]string{"triage", "triage", "billing"}))
		Expect(w.Runs(ctx, id)).To(BeEmpty())
	})

	It("is neither shown nor let in where the conversation must stay", Label("AGT-03"), func(ctx SpecContext) {
		seen := &spy{factory: w.Models}
		w.Models = seen
		w.Definitions.Put("triage", enginetest.Calls(definition.CalledAgent{ObjectName: "billing"}), enginetest.Script(
			enginetest.Call("billing", map[string]any{}), enginetest.Say("I stay.")))
		w.Definitions.Put("billing", enginetest.Script(enginetest.Say("billing")))
		w.Definitions.SetHandoffPolicy(skeinv1.HandoffNever)
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "help")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: help", "assistant ->billing",
			"tool billing error: this conversation stays with the agent triage (handoffPolicy: Never): continue it yourself", "assistant: I stay."))
		Expect(seen.tools("triage", 0)).To(BeEmpty())
		Expect(agentOf(ctx, id)).To(Equal([]string{"triage", "triage", "triage"}))
	})

	It("cannot be passed back and forth for ever", Label("AGT-03"), func(ctx SpecContext) {
		for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
			w.Definitions.Put(pair[0], enginetest.Calls(definition.CalledAgent{ObjectName: pair[1]}), enginetest.Script(
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "limit"}, Content: "enough"},
				skeinv1.ScriptStep{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall(pair[1], map[string]any{})}}))
		}
		start(w, func(o *engine.Options) { o.Limits.Handoffs = 3 })
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(handoffs(ctx, id)).To(HaveLen(3))
		Expect(told(ctx, w, id)).To(ContainElement(ContainSubstring("error: the conversation was handed over 3 times since the last message, which is the limit")))
	})

	It("that is not ready leaves the conversation where it is", Label("AGT-03"), func(ctx SpecContext) {
		w.Definitions.Put("triage", enginetest.Calls(definition.CalledAgent{ObjectName: "gone"}), enginetest.Script(
			enginetest.Call("gone", map[string]any{}), enginetest.Say("then I do it")))
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: go", "assistant ->gone",
			ContainSubstring(`error: the agent gone cannot take the conversation now: Agent "gone" does not exist`), "assistant: then I do it"))
	})

	It("that is asked works in a thread of its own, a fresh one each time, and gives its result", Label("AGT-04"), func(ctx SpecContext) {
		ask := func(text string) skeinv1.ScriptToolCall {
			return enginetest.ToolCall("expert", map[string]any{"message": text, "arguments": map[string]any{"lang": "en"}})
		}
		w.Definitions.Put("triage", enginetest.Calls(definition.CalledAgent{ObjectName: "expert", Ask: true, Arguments: []byte(
			`{"type":"object","required":["lang"],"properties":{"lang":{"type":"string"}}}`),
			TTLAfterFinished: &metav1.Duration{Duration: time.Hour}, Retain: skeinv1.ChildKeep}), enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{ask("one"), ask("two"), enginetest.ToolCall("expert", map[string]any{"message": "three"})}},
			enginetest.Say("done")))
		w.Definitions.Put("expert", enginetest.Script(enginetest.Say("{{.Arguments.lang}}: {{.Last.Content}}")))
		var asked []skeinv1.AgentSubagent
		w.Children.Refuse = func(req ports.ChildRequest) error {
			asked = append(asked, req.Subagent)
			return nil
		}
		start(w)
		id := makeThread(ctx, w, "triage")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(asked).To(HaveEach(And(HaveField("Name", "expert"), HaveField("TTLAfterFinished", HaveValue(HaveField("Duration", time.Hour))), HaveField("Retain", skeinv1.ChildKeep))))
		Expect(told(ctx, w, id)).To(ConsistOf("user: go", "assistant ->expert ->expert ->expert", "tool expert success: en: one", "tool expert success: en: two",
			ContainSubstring("missing property 'arguments'"), "assistant: done"))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveEach(And(HaveField("Agent", "expert"), HaveField("TerminatedReason", skeinv1.ReasonSessionEnded))))
		Expect(children).To(HaveLen(2))
		Expect(agentOf(ctx, id)).To(Equal([]string{"triage", "triage", "triage"}))
	})
})
