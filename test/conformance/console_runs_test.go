package conformance

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The console's views of families and runs", Label("CON-02"), func() {
	spawn := func(message, title string) skeinv1.ScriptStep {
		return harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": message, "name": title})
	}

	It("draws a thread with its descendants as a tree that changes with them", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", spawn("deeper", "Child")), harness.After("subagent_create", harness.Answer("done"))},
			[]skeinv1.ScriptStep{harness.On("deeper", spawn("work", "Grandchild")), harness.After("subagent_create", harness.Answer("I had help")), harness.On("work", harness.Answer("worked"))},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		part(ctx, p, "Family")
		p.See(ctx, "This thread has no subagents.")
		say(ctx, t, 1, "go")
		nodes := p.Test("family-node")
		p.See(ctx, "2 threads below thread")
		Expect(nodes.Count(ctx)).To(Equal(3))

		By("its shape: the grandchild is within the child, which is within the parent")
		tree := p.By("list", "Family of the thread")
		Expect(tree.CSS(":scope > li > ul > li > ul > li").Text(ctx)).To(ContainSubstring("Grandchild"))
		tree.CSS(":scope > li > ul > li > .leaf").See(ctx, "agent worker")

		child := p.By("link", "Child").Attribute(ctx, "title")
		By("folding, and going to a descendant")
		p.By("button", "Subagents of "+child).Click(ctx)
		p.By("link", "Grandchild").Gone(ctx)
		p.By("button", "Subagents of "+child).Click(ctx)
		p.By("link", "Grandchild").Click(ctx)
		p.By("heading", "Grandchild").Wait(ctx)
		Expect(p.By("list", "Family of the thread").CSS(".here").Text(ctx)).To(ContainSubstring("Grandchild"))
		p.Test("fact-Below").See(ctx, child)
	}, SpecTimeout(5*patience))

	It("draws the steps of a run along a time line, with gaps compressed, each of which leads to its message", func(ctx SpecContext) {
		t := approvedValues(ctx)
		Expect(t.Say(ctx, "first")).To(Succeed())
		p := openConsole(ctx, t.Namespace)
		openThread(ctx, p, "thread")
		part(ctx, p, "Runs")
		spans := p.Test("span")
		spans.Containing("Step 1: model call").Wait(ctx)
		spans.Containing("approval of set_value").See(ctx, "so far")

		By("a wait that is longer than what was done")
		p.Test("gap").Wait(ctx)
		p.See(ctx, "1 gap of")
		call := awaiting(ctx, golang(t), 1)[0]
		_, err := cluster.Plugin(ctx, "-n", t.Namespace, "approve", "thread", call.ToolCallID)
		Expect(err).NotTo(HaveOccurred())
		spans.Containing("Step 1: set_value").Wait(ctx)
		spans.Containing("Step 2: model call").Wait(ctx)
		p.Test("gap").Wait(ctx)
		p.By("table", "Runs").See(ctx, "succeeded")
		Expect(spans.Count(ctx)).To(Equal(5), "the message, two model calls, the approval and the tool")

		By("jumping to a step")
		spans.Containing("Step 2: model call").CSS("a").Click(ctx)
		p.By("region", "Messages").CSS(".highlighted").See(ctx, "the tool said")
		Expect(p.Focused(ctx)).To(ContainSubstring("Message of the agent"))
	}, SpecTimeout(5*patience))

	It("finds the steps of an early run in a long log, and the message far above", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, []string{"builtin:kv"}, []skeinv1.ScriptStep{
			harness.After("set_value", harness.Answer("kept")), harness.On("keep", harness.Calls("set_value", map[string]any{"key": "a", "value": 1})), harness.Echo()})
		say(ctx, t, 1, "keep")
		for i := range 350 {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: fmt.Sprintf("note %d", i)})
			Expect(err).NotTo(HaveOccurred())
		}
		say(ctx, t, 2, "and on")
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		messages := p.By("region", "Messages")
		messages.See(ctx, "echo: and on")
		shown := messages.CSS(".message")
		Expect(shown.Count(ctx)).To(BeNumerically("<=", 200), "the newest ones")
		messages.See(ctx, "note 349")

		By("reading earlier messages until there are no more")
		for p.By("button", "Earlier messages").Count(ctx) > 0 {
			before := shown.Count(ctx)
			p.By("button", "Earlier messages").Click(ctx)
			Eventually(ctx, func() int { return shown.Count(ctx) }).Should(BeNumerically(">", before))
		}
		const all = 3 + 350 + 2 // the result of the tool is in the message of its call
		Expect(shown.Count(ctx)).To(Equal(all))
		inOrder := `function () { return [...this.querySelectorAll(".message")].map((m) => /note (\d+)/.exec(m.innerText)?.[1]).filter((n) => n !== undefined).every((n, i) => Number(n) === i) }`
		Expect(chromium.Ask[bool](ctx, messages, inOrder)).To(BeTrue())

		By("messages that come, so that the server sends fewer of the earlier ones")
		for i := range 250 {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: fmt.Sprintf("later %d", i)})
			Expect(err).NotTo(HaveOccurred())
		}
		messages.See(ctx, "later 249")
		Expect(shown.Count(ctx)).To(Equal(all + 250))
		Expect(chromium.Ask[bool](ctx, messages, inOrder)).To(BeTrue())
		Expect(chromium.Ask[bool](ctx, messages, strings.ReplaceAll(inOrder, "note", "later"))).To(BeTrue())

		By("going to a step of the first run")
		p.Reload(ctx)
		part(ctx, p, "Runs")
		runs := must(t.Runs(ctx))
		p.CSS(`a[href$="` + runs[len(runs)-1].ID + `"]`).Click(ctx)
		p.Test("span").Containing("set_value").Wait(ctx)
		p.Test("span").Containing("Step 1: model call").CSS("a").Click(ctx)
		messages.CSS(".highlighted").See(ctx, "set_value")
		Expect(p.Focused(ctx)).To(ContainSubstring("Message of the agent"))
	}, SpecTimeout(5*patience))
})
