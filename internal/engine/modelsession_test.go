package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// sessions has a scripted model keep sessions.
func sessions(a *engine.Agent) { a.A.Model.Spec.Sessions = ptr.To(true) }

var _ = Describe("A provider's conversation", Label("RUN-06"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })
	// answers tell which session each call went on with, and how many messages that did not know.
	step := skeinv1.ScriptStep{Content: "{{ .Session }}/{{ .NewMessages }}", Times: ptr.To[int32](0)}
	ask := func(ctx context.Context, id, text string) string {
		GinkgoHelper()
		send(ctx, w, id, text)
		r := rest(ctx, w, id)
		Expect(r.Status).To(Equal(store.RunSucceeded), r.Message)
		all := told(ctx, w, id)
		return all[len(all)-1]
	}

	It("is gone on with from run to run, over restarts of the engine, and from step to step", func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(
			skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "look"}, Content: "{{ .Session }}/{{ .NewMessages }}", ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("get_value", map[string]any{"key": "k"})}}, step))
		_, stop := start(w)
		id := makeThread(ctx, w, "a")
		Expect(ask(ctx, id, "one")).To(Equal("assistant: /2")) // the system prompt and the message
		Expect(ask(ctx, id, "two")).To(Equal("assistant: session-3/1"))
		stop()
		start(w)
		Expect(ask(ctx, id, "look")).To(Equal("assistant: session-7/1"), "only the result is new")
		Expect(told(ctx, w, id)).To(ContainElement("assistant ->get_value: session-5/1"))
	})

	It("is begun anew where the log is no longer what the provider knows, and by another agent or thread", func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Script(step))
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		Expect(ask(ctx, id, "two")).To(Equal("assistant: session-3/1"))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.Apply(ctx, id, nil, &store.UpdateMessage{ID: msgs[0].ID, Content: ptr.To("another")})).To(Succeed())
		Expect(ask(ctx, id, "three")).To(Equal("assistant: /6"))
		Expect(ask(ctx, id, "four")).To(Equal("assistant: session-7/1"))
		Expect(w.Store.Apply(ctx, id, nil, &store.DeleteMessage{ID: msgs[1].ID})).To(Succeed())
		Expect(ask(ctx, id, "five")).To(Equal("assistant: /9"))
		w.Definitions.Put("a", sessions, enginetest.Script(step)) // another version of the Model
		Expect(ask(ctx, id, "six")).To(Equal("assistant: /11"))
	})

	It("that the provider has forgotten is begun anew, and nobody is told", func(ctx SpecContext) {
		forgets := step
		forgets.When, forgets.ForgetsSession = &skeinv1.ScriptMatch{Matches: "two"}, true
		w.Definitions.Put("a", sessions, enginetest.Script(forgets, step))
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		Expect(ask(ctx, id, "two")).To(Equal("assistant: /4"))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-5/1"))
	})

	It("stays the old one over a failure", Label("RUN-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "two"}, Error: "out of order"}, step))
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		send(ctx, w, id, "two")
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Message", "out of order")))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-3/3"), "what failed and what was asked then are new to it")
	})

	It("that a fallback had no part in goes on behind it", Label("AGT-06"), func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "two"}, Error: "down", Times: ptr.To[int32](0)}, step), func(a *engine.Agent) {
			a.A.Model.Fallbacks = []engine.Model{{Name: "b", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: []skeinv1.ScriptStep{enginetest.Say("from b")}}}
		})
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		Expect(ask(ctx, id, "two")).To(Equal("assistant: from b"))
		msgs, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(msgs[3].Metadata).To(And(HaveKeyWithValue("model", "b"), HaveKeyWithValue("model_failures", []any{"a: down"})))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-3/3"))
	})
})
