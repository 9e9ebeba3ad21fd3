package conformance

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

// exactArguments would become others if the page parsed them and wrote them anew. A character turns the direction of the text that follows.
const exactArguments = `{"key":"a","value":{"account":9007199254740993,"price":1.10,"to":"ada","to":"mallory` + "\u202e" + `"}}`

// top returns where an element is in the window.
func top(ctx context.Context, l *chromium.Locator) float64 {
	GinkgoHelper()
	return chromium.Ask[float64](ctx, l, `function () { return this.getBoundingClientRect().top }`)
}

var _ = Describe("The console's approvals", func() {
	It("shows arguments as the model wrote them, and sends others as the person wrote them", Label("CON-03", "CON-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if req.Messages[len(req.Messages)-1].Role == "user" {
				harness.CallTool(w, "m", "call-1", "set_value", exactArguments)
				return
			}
			harness.Say(w, "m", "done")
		})
		DeferCleanup(server.Close)
		prompt := harness.Prompt(ns, "prompt", "model", "builtin:kv")
		prompt.Spec.Tools[0].RequiresApproval = true
		create(ctx, harness.OpenAI(ns, "model", server.URL, ""), prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "pay")).To(Succeed())
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Approvals (1)").Click(ctx)
		calls := p.By("region", "Calls of "+ns+"/thread")
		calls.See(ctx, `"account": 9007199254740993`)
		Expect(calls.Text(ctx)).To(And(ContainSubstring(`"price": 1.10`), ContainSubstring(`"to": "ada"`), ContainSubstring(`"to": "mallory\u202e"`)))

		calls.By("button", "Change the arguments of set_value").Click(ctx)
		field := calls.By("textbox", "New arguments of set_value")
		field.Fill(ctx, strings.Replace(field.Value(ctx), `"key": "a"`, `"key": "b"`, 1))
		calls.By("button", "Approve set_value").Click(ctx)
		settled(ctx, t, 1)
		var said []string
		for _, e := range must(t.Log(ctx)) {
			if e.Type == "approval.decided" {
				said = append(said, string(e.Data))
			}
		}
		Expect(said).To(HaveLen(1))
		Expect(said[0]).To(And(ContainSubstring("9007199254740993"), ContainSubstring("1.10"), ContainSubstring("ada")))
	}, SpecTimeout(3*patience))

	It("leaves calls where they are, with what a person typed, while others are decided, end and come", Label("CON-03"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		ns := t.Namespace
		create(ctx, harness.NewThread(ns, "second", "agent"), harness.NewThread(ns, "third", "agent"), harness.NewThread(ns, "fourth", "agent"))
		for _, name := range []string{"thread", "second", "third"} {
			Expect(ready(ctx, cluster.Thread(ns, name)).Say(ctx, "first")).To(Succeed())
			awaiting(ctx, golang(cluster.Thread(ns, name)), 1)
		}
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Approvals (3)").Click(ctx)
		of := func(name string) *chromium.Locator { return p.By("region", "Calls of "+ns+"/"+name) }
		for _, name := range []string{"thread", "second", "third"} {
			of(name).See(ctx, "waits for approval")
		}
		order := `[...document.querySelectorAll("section[aria-label^='Calls of']")].map((s) => s.getAttribute("aria-label").split("/")[1]).join(" ")`
		names := strings.Fields(chromium.Eval[string](ctx, p, order))
		Expect(names).To(ConsistOf("thread", "second", "third"))
		first, middle, end := of(names[0]), of(names[1]), of(names[2])
		middle.By("textbox", "Reason").Type(ctx, "because of the weather")
		button := middle.By("button", "Refuse set_value")
		before := top(ctx, button)

		By("another person who decides, a thread that ends, and one that begins to wait")
		decided := awaiting(ctx, golang(cluster.Thread(ns, names[0])), 1)
		_, err := cluster.Plugin(ctx, "-n", ns, "approve", names[0], decided[0].ToolCallID)
		Expect(err).NotTo(HaveOccurred())
		first.See(ctx, "set_value no longer waits")
		Expect(cluster.Thread(ns, names[2]).Terminate(ctx)).To(Succeed())
		end.See(ctx, "no longer waits")
		Expect(ready(ctx, cluster.Thread(ns, "fourth")).Say(ctx, "first")).To(Succeed())
		of("fourth").See(ctx, "waits for approval")
		Expect(strings.Fields(chromium.Eval[string](ctx, p, order))).To(Equal(append(names, "fourth")))
		Expect(top(ctx, button)).To(Equal(before))
		Expect(middle.By("textbox", "Reason").Value(ctx)).To(Equal("because of the weather"))
		Expect(first.By("button", "Approve set_value").Attribute(ctx, "aria-disabled")).To(Equal("true"))

		By("the focus, which goes to the next call that waits, and then to the heading")
		middle.By("button", "Refuse set_value").Press(ctx, "Enter")
		middle.See(ctx, "refused by you")
		Expect(p.Focused(ctx)).To(Equal(`heading "set_value waits for approval"`))
		of("fourth").By("button", "Approve set_value").Press(ctx, "Enter")
		of("fourth").See(ctx, "approved by you")
		Expect(p.Focused(ctx)).To(Equal(`heading "Approvals"`))
		p.See(ctx, "No call waits for approval.")
		p.By("button", "Remove decided calls").Click(ctx)
		p.Test("approval").Gone(ctx)
	}, SpecTimeout(5*patience))

	It("reads the rights of the viewer once for all threads", Label("CON-03"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		ns := t.Namespace
		create(ctx, harness.NewThread(ns, "second", "agent"))
		for _, name := range []string{"thread", "second"} {
			Expect(ready(ctx, cluster.Thread(ns, name)).Say(ctx, "first")).To(Succeed())
		}
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Approvals (2)").Click(ctx)
		p.By("region", "Calls of "+ns+"/thread").By("button", "Approve set_value").Wait(ctx)
		p.By("region", "Calls of "+ns+"/second").By("button", "Approve set_value").Wait(ctx)
		reads := 0
		for _, r := range p.Requests() {
			if strings.Contains(r.URL, "/api/rights") {
				reads++
			}
		}
		Expect(reads).To(Equal(1))
	}, SpecTimeout(3*patience))
})

var _ = Describe("The console and texts that are hard to show", Label("CON-04"), func() {
	It("shows them as they are, and the others of the thread", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		long := strings.Repeat("-", 80) + "\n\n" + strings.Repeat("A line of **this** text"+strings.Repeat(" with words", 10)+".\n\n", 400)
		for _, text := range []string{
			strings.Repeat(">", 3000) + "deep", strings.Repeat("- ", 100) + "listed", strings.Repeat("*a_ ", 1200) + "starred", strings.Repeat("[", 1500) + "open",
			strings.Repeat("a\n=\n", 1600) + "headed", strings.Repeat("|a", 70) + "|\n" + strings.Repeat("|-", 70) + "|\n" + strings.Repeat("|\n", 70) + "tabled", long, "and **that** is all",
		} {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: "assistant", Content: text})
			Expect(err).NotTo(HaveOccurred())
		}
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		messages := p.By("region", "Messages")
		messages.See(ctx, "and that is all")
		for _, part := range []string{">>deep", "- listed", "*a_ starred", "[[open", "headed", "tabled"} {
			Expect(messages.CSS("pre.long").Containing(part).Count(ctx)).To(Equal(1), part)
		}
		p.By("button", "Show as markdown").Click(ctx)
		p.By("button", "Show as markdown").Gone(ctx)
		Expect(messages.CSS(".message").Containing("A line of this text").Count(ctx)).To(Equal(1))
	}, SpecTimeout(3*patience))
})
