package conformance

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The console's actions", Label("CON-03"), func() {
	It("has an inbox in which calls are approved, approved with other arguments, and refused", func(ctx SpecContext) {
		t := approvedValues(ctx)
		ns := t.Namespace
		create(ctx, harness.NewThread(ns, "second", "agent"), harness.NewThread(ns, "third", "agent"))
		for _, name := range []string{"thread", "second", "third"} {
			Expect(ready(ctx, cluster.Thread(ns, name)).Say(ctx, "first")).To(Succeed())
		}
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Approvals (3)").Click(ctx)
		p.See(ctx, "3 threads wait for approval")

		By("approving one as it is")
		calls := p.By("region", "Calls of "+ns+"/thread")
		calls.See(ctx, `"value": 1`)
		calls.By("button", "Approve set_value").Click(ctx)
		Expect(last(settled(ctx, t, 1))).To(HavePrefix("the tool said"))
		Expect(t.Value(ctx, "a")).To(MatchJSON("1"))
		calls.See(ctx, "approved by you")

		By("arguments that are not JSON, and others")
		calls = p.By("region", "Calls of "+ns+"/second")
		calls.By("button", "Change the arguments of set_value").Click(ctx)
		calls.By("textbox", "New arguments of set_value").Fill(ctx, `{"key": "b"`)
		calls.By("button", "Approve set_value").Click(ctx)
		calls.By("alert", "").See(ctx, "The arguments are not JSON")
		calls.By("textbox", "New arguments of set_value").Fill(ctx, `{"key": "b", "value": 7}`)
		calls.By("button", "Approve set_value").Click(ctx)
		settled(ctx, cluster.Thread(ns, "second"), 1)
		Expect(cluster.Thread(ns, "second").Value(ctx, "b")).To(MatchJSON("7"))
		calls.See(ctx, "approved by you with other arguments")

		By("refusing one, with a reason that the model reads")
		calls = p.By("region", "Calls of "+ns+"/third")
		calls.By("textbox", "Reason").Fill(ctx, "not on a Sunday")
		calls.By("button", "Refuse set_value").Click(ctx)
		Expect(last(settled(ctx, cluster.Thread(ns, "third"), 1))).To(ContainSubstring("not on a Sunday"))
		p.See(ctx, "No call waits for approval.")
		p.By("navigation", "Views").By("link", "Approvals").Wait(ctx)
	}, SpecTimeout(5*patience))

	It("sends messages once, stops a run, and lets the queue go on", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("long", harness.Slow(time.Hour, harness.Answer("never"))), harness.Echo()})
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		field := p.By("textbox", "Message to thread")
		field.Type(ctx, "hello")
		field.Press(ctx, "Shift+Enter")
		field.Type(ctx, "again")
		field.Press(ctx, "Enter", "Enter", "Enter")
		p.By("region", "Messages").See(ctx, "echo: hello")
		Expect(texts(settled(ctx, t, 1))).To(Equal([]string{"user: hello\nagain", "assistant: echo: hello\nagain"}))

		By("a message that waits behind a run, and stopping that run")
		field.Type(ctx, "a long one")
		field.Press(ctx, "Enter")
		p.Test("fact-Last run").See(ctx, "running")
		field.Type(ctx, "in between")
		field.Press(ctx, "Enter")
		p.By("region", "Messages in the queue").See(ctx, "in between")
		p.By("button", "Stop the run of thread").Click(ctx)
		p.Test("fact-Last run").See(ctx, "stopped")
		p.By("region", "Messages in the queue").See(ctx, "until the thread continues")
		p.By("button", "Continue the queue of thread").Click(ctx)
		p.By("region", "Messages").See(ctx, "echo: in between")
		p.By("button", "Continue the queue of thread").Gone(ctx)

		By("a message that cannot be sent at the moment, which is not lost and is stored once")
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) {
			if !manager.Running() {
				Expect(manager.Start(ctx)).To(Succeed())
			}
		})
		p.Allow("load", "WebSocket")
		field.Type(ctx, "through the storm")
		field.Press(ctx, "Enter")
		field.Type(ctx, "typed meanwhile")
		p.Test("outgoing").See(ctx, "through the storm")
		p.Test("outgoing").See(ctx, "Skein does not answer at present")
		Expect(field.Value(ctx)).To(Equal("typed meanwhile"))
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			// The page may send it by itself between a look and a click, so both are one step.
			chromium.Eval[bool](ctx, p, `(document.querySelector('[data-test="outgoing"] button')?.click(), true)`)
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement("user: through the storm"))
		}).Should(Succeed())
		p.Test("outgoing").Gone(ctx)
		p.By("region", "Messages").See(ctx, "echo: through the storm")
		Expect(texts(must(t.Messages(ctx)))).To(WithTransform(func(all []string) int { return strings.Count(strings.Join(all, "|"), "user: through the storm") }, Equal(1)))

		By("a thread that takes no more messages")
		Expect(t.Terminate(ctx)).To(Succeed())
		p.CSS(`textarea[disabled][placeholder*="terminated"]`).Wait(ctx)
	}, SpecTimeout(5*patience))

	It("forks at a message", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "one")
		say(ctx, t, 2, "two")
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		messages := p.By("region", "Messages")
		messages.CSS(".message").Containing("echo: one").CSS(".actions button").Click(ctx)
		dialog := p.By("dialog", "Fork the thread at this message")
		dialog.By("textbox", "Title").Fill(ctx, "Another way")
		dialog.By("textbox", "Go on with the message").Fill(ctx, "three")
		dialog.By("button", "Fork").Click(ctx)
		p.By("heading", "Another way").Wait(ctx)
		messages.See(ctx, "echo: three")
		Expect(messages.Text(ctx)).To(And(ContainSubstring("echo: one"), Not(ContainSubstring("two"))))
		Expect(texts(must(t.Messages(ctx)))).To(HaveLen(4), "the thread itself stays as it was")
	}, SpecTimeout(5*patience))

	It("shows effects with their next, last and skipped times, runs them now and suspends them", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		message := &skeinv1.EffectMessage{Content: "what is new?"}
		create(ctx,
			scheduled(ns, "leap", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: message, Schedules: never}),
			scheduled(ns, "often", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: message, Schedules: []string{"@every 2s"}, Suspend: true}))
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Effects").Click(ctx)
		rows := p.Test("effect-row")
		rows.Containing("leap").See(ctx, never[0])
		rows.Containing("leap").See(ctx, "in ")
		rows.Containing("often").See(ctx, "Suspended")

		By("running one now")
		p.By("link", "leap").Click(ctx)
		p.By("region", "Next times").See(ctx, "Feb 29")
		p.See(ctx, "It has not fired yet.")
		p.By("button", "Run now: leap").Click(ctx)
		p.Test("answer").See(ctx, ": fires")
		p.Test("firing").See(ctx, "succeeded")
		p.Test("firing").See(ctx, "manual")
		p.Test("fact-Last outcome").Wait(ctx)
		Expect(texts(settled(ctx, t, 1))).To(ContainElement("user: what is new?"))

		By("times that were skipped, and letting it fire again")
		p.By("link", "All effects").Click(ctx)
		p.By("link", "often").Click(ctx)
		p.Test("skipped").See(ctx, "Suspended")
		p.By("button", "Resume often").Click(ctx)
		p.Test("firing").Wait(ctx)
		p.By("button", "Suspend often").Click(ctx)
		p.By("button", "Resume often").Wait(ctx)
		var o skeinv1.ScheduledEffect
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "often"}, &o)).To(Succeed())
		Expect(o.Spec.Suspend).To(BeTrue())

		By("one that ends while it is shown")
		Expect(cluster.Client.Delete(ctx, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "often"}})).To(Succeed())
		p.See(ctx, "There is no ScheduledEffect "+ns+"/often.")
		p.Allow("404")
	}, SpecTimeout(5*patience))
})
