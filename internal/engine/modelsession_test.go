package engine_test

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// sessions has a scripted model keep sessions.
func sessions(a *definition.Agent) { a.A.Model.Spec.Sessions = ptr.To(true) }

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

	It("continues over steps, runs and restarts of the engine", func(ctx SpecContext) {
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

	It("begins again after a change of the log, and for another agent or thread", func(ctx SpecContext) {
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

	It("that the provider has lost begins again without an error", func(ctx SpecContext) {
		forgets := step
		forgets.When, forgets.ForgetsSession = &skeinv1.ScriptMatch{Matches: "two"}, true
		w.Definitions.Put("a", sessions, enginetest.Script(forgets, step))
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		Expect(ask(ctx, id, "two")).To(Equal("assistant: /4"))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-5/1"))
	})

	It("continues after a failure", Label("RUN-05"), func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "two"}, Error: "out of order"}, step))
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		send(ctx, w, id, "two")
		Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Message", "out of order")))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-3/3"), "what failed and what was asked then are new to it")
	})

	It("is exported, kept after a failure, and continued after an import", Label("LOG-01", "LOG-02", "RUN-05"), func(ctx SpecContext) {
		failing := skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "fail"}, Error: "out of order", Times: ptr.To[int32](0)}
		w.Definitions.Put("a", sessions, enginetest.Script(failing, step))
		w.Definitions.Put("other", sessions, enginetest.Script(failing, step))
		start(w)
		export := func(id string) string {
			GinkgoHelper()
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			var out strings.Builder
			_, err = st.Export(ctx, &out)
			Expect(err).NotTo(HaveOccurred())
			return out.String()
		}
		manifest := func(export string) map[string]any {
			GinkgoHelper()
			var m map[string]any
			Expect(json.NewDecoder(strings.NewReader(export)).Decode(&m)).To(Succeed())
			return m
		}
		imported := func(agent, lines string) string {
			GinkgoHelper()
			id := makeThread(ctx, w, agent)
			st, err := w.Threads.Open(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			_, err = st.Import(ctx, strings.NewReader(lines))
			Expect(err).NotTo(HaveOccurred())
			return id
		}

		id := makeThread(ctx, w, "a")
		Expect(manifest(export(id))).NotTo(HaveKey("sessionId"))
		ask(ctx, id, "one")
		Expect(manifest(export(id))).To(HaveKeyWithValue("sessionId", "session-3"))
		send(ctx, w, id, "fail")
		Expect(rest(ctx, w, id)).To(HaveField("Status", store.RunFailed))
		first := export(id)
		Expect(manifest(first)).To(And(HaveKeyWithValue("sessionId", "session-3"), Not(HaveKey("sessionMessages"))), "a failure keeps it")

		copied := imported("a", first)
		Expect(export(copied)).To(Equal(first), "export of an import is the same")
		Expect(ask(ctx, copied, "two")).To(Equal("assistant: session-3/3"), "as the thread itself goes on")
		Expect(ask(ctx, id, "two")).To(Equal("assistant: session-3/3"))
		Expect(manifest(export(copied))).To(HaveKeyWithValue("sessionId", manifest(export(id))["sessionId"]))

		By("not continuing it after another log, or with another agent")
		edited := imported("a", first)
		msgs, err := w.Messages(ctx, edited)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.Apply(ctx, edited, nil, &store.UpdateMessage{ID: msgs[0].ID, Content: ptr.To("another")})).To(Succeed())
		Expect(ask(ctx, edited, "two")).To(HavePrefix("assistant: /"))
		Expect(ask(ctx, imported("other", first), "two")).To(HavePrefix("assistant: /"))
		Expect(ask(ctx, imported("a", strings.Replace(first, "session-3", "sess_0123456789abcdef0123456789abcdef", 1)), "two")).To(HavePrefix("assistant: /"), "that is a run of an older export")
	})

	It("is exported with the number of messages that it knows", Label("LOG-01", "LOG-02"), func(ctx SpecContext) {
		down := skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "two"}, Error: "down", Times: ptr.To[int32](0)}
		w.Definitions.Put("a", sessions, enginetest.Script(down, step), func(a *definition.Agent) {
			a.A.Model.Fallbacks = []definition.Model{{Name: "b", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: []skeinv1.ScriptStep{enginetest.Say("from b")}}}
		})
		start(w)
		id := makeThread(ctx, w, "a")
		ask(ctx, id, "one")
		ask(ctx, id, "two")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		var out strings.Builder
		_, err = st.Export(ctx, &out)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.String()).To(ContainSubstring(`"sessionId":"session-3","sessionMessages":2,`))
		copied := makeThread(ctx, w, "a")
		st, err = w.Threads.Open(ctx, copied)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.Import(ctx, strings.NewReader(out.String()))
		Expect(err).NotTo(HaveOccurred())
		var again strings.Builder
		_, err = st.Export(ctx, &again)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.String()).To(Equal(out.String()))
		Expect(ask(ctx, copied, "three")).To(Equal("assistant: session-3/3"))
		Expect(ask(ctx, id, "three")).To(Equal("assistant: session-3/3"))
	})

	It("continues after an answer of a fallback", Label("AGT-06"), func(ctx SpecContext) {
		w.Definitions.Put("a", sessions, enginetest.Script(skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "two"}, Error: "down", Times: ptr.To[int32](0)}, step), func(a *definition.Agent) {
			a.A.Model.Fallbacks = []definition.Model{{Name: "b", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: []skeinv1.ScriptStep{enginetest.Say("from b")}}}
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
