package engine_test

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A message that comes too late for the answer of a subagent that is not resumable", Label("SUB-02", "MSG-05"), func() {
	// late has a person say something to the child while its model is asked for the answer, which is that of answer, and returns the
	// parent and the child at rest.
	late := func(ctx SpecContext, w *enginetest.World, answer skeinv1.ScriptStep) (parent string, child store.Thread) {
		GinkgoHelper()
		var once sync.Once
		w.Models = patient{w.Models, "child", func(ctx context.Context) bool {
			first := false
			once.Do(func() {
				defer GinkgoRecover()
				first = true
				children, err := w.Store.Children(ctx, parent)
				Expect(err).NotTo(HaveOccurred())
				Expect(children).To(HaveLen(1))
				send(ctx, w, children[0].ID, "and more")
			})
			if !first { // the second answer comes after the parent's step with the first one
				defer GinkgoRecover()
				Eventually(func() []string { return told(ctx, w, parent) }).Should(ContainElement("assistant: noted"))
			}
			return true
		}}
		w.Definitions.Put("child", enginetest.Script(answer, enginetest.Say("re: {{.Last.Content}}")))
		w.Definitions.Put("parent", func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps", Blocking: true,
				ParentCommunication: skeinv1.CommunicationImplicit, MaxInstances: 10}}
			a.A.Prompt.Spec.Tools = append(a.A.Prompt.Spec.Tools, skeinv1.PromptTool{Builtin: skeinv1.BuiltinSubagents})
		}, enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{enginetest.ToolCall("subagent_create", map[string]any{"agent": "helper", "message": "one"})}},
			skeinv1.ScriptStep{Content: "noted"}, skeinv1.ScriptStep{Content: "noted, too"}))
		parent = makeThread(ctx, w, "parent")
		start(w)
		send(ctx, w, parent, "go")
		Eventually(func(g Gomega) {
			children, err := w.Store.Children(ctx, parent)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(children).To(HaveExactElements(HaveField("TerminatedReason", skeinv1.ReasonSessionEnded)))
			child = children[0]
		}).Should(Succeed())
		rest(ctx, w, child.ID)
		rest(ctx, w, parent)
		return parent, child
	}

	It("is answered before the subagent ends, and the parent has both results", func(ctx SpecContext) {
		w := newWorld()
		parent, child := late(ctx, w, skeinv1.ScriptStep{Content: "five"})
		Expect(told(ctx, w, child.ID)).To(Equal([]string{"user: one", "assistant: five", "user: and more", "assistant: re: and more"}))
		Expect(told(ctx, w, parent)).To(Equal([]string{"user: go", "assistant ->subagent_create", "tool subagent_create success: five", "assistant: noted",
			"user: [subagent helper (" + child.Reference + ") completed]\nre: and more", "assistant: noted, too"}))
		Expect(w.Send(ctx, child.ID, "too late")).To(MatchError(store.ErrTerminated))
	})

	It("is not answered when the run fails, with which the subagent ends", func(ctx SpecContext) {
		w := newWorld()
		parent, child := late(ctx, w, skeinv1.ScriptStep{Error: "broken"})
		Expect(told(ctx, w, child.ID)).To(HaveExactElements("user: one", ContainSubstring("(error: ")))
		Expect(told(ctx, w, parent)).To(HaveExactElements("user: go", "assistant ->subagent_create", HavePrefix("tool subagent_create error"), "assistant: noted"))
	})
})
