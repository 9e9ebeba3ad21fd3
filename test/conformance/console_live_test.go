package conformance

import (
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The console's thread", func() {
	It("keeps what was written when another part or thread is opened, and sends it all", Label("CON-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.NewThread(ns, "second", "agent"))
		ready(ctx, cluster.Thread(ns, "second"))
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		field := p.By("textbox", "Message to thread")
		for _, text := range []string{"one", "two", "three"} {
			field.Type(ctx, text)
			field.Press(ctx, "Enter")
		}
		field.Type(ctx, "not yet")
		part(ctx, p, "Files")
		p.By("navigation", "Views").By("link", "Threads").Click(ctx)
		openThread(ctx, p, "second")
		Expect(p.By("textbox", "Message to second").Value(ctx)).To(BeEmpty())
		p.By("navigation", "Views").By("link", "Threads").Click(ctx)
		openThread(ctx, p, "thread")
		Expect(field.Value(ctx)).To(Equal("not yet"))
		Eventually(ctx, func() []string { return texts(must(t.Messages(ctx))) }).Should(ContainElements("user: one", "user: two", "user: three"))
		p.Test("outgoing").Gone(ctx)
		field.Fill(ctx, "")
	}, SpecTimeout(5*patience))

	It("says that a thread was deleted, and shows the next one of its name as another one", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "of the first")
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		p.See(ctx, "of the first")
		p.Allow("load", "WebSocket")
		Expect(t.Delete(ctx)).To(Succeed())
		p.See(ctx, "The thread was deleted.")
		p.CSS(`textarea[disabled]`).Wait(ctx)
		Eventually(ctx, func() error { _, err := t.Object(ctx); return err }).Should(Satisfy(apierrors.IsNotFound))
		create(ctx, harness.NewThread(ns, "thread", "agent"))
		ready(ctx, t)
		p.See(ctx, "There is no message yet.")
		p.NotSee(ctx, "of the first")
		p.NotSee(ctx, "The thread was deleted.")
		p.By("textbox", "Message to thread").Type(ctx, "of the second")
		p.Press(ctx, "Enter")
		p.See(ctx, "echo: of the second")
	}, SpecTimeout(5*patience))

	It("shows what a model writes after its call was repeated, without what was withdrawn", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		goOn, broken := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, _ harness.ChatRequest) {
			if calls.Add(1) == 1 {
				harness.SayWhen(w, "m", broken, "withdrawn text", "")
				panic(http.ErrAbortHandler)
			}
			harness.SayWhen(w, "m", goOn, "the answer", " is whole")
		})
		DeferCleanup(server.Close)
		model := harness.OpenAI(ns, "model", server.URL, "")
		model.Spec.MaxRetries = ptr.To[int32](2)
		t := converseWith(ctx, ns, model, nil)
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		Expect(t.Say(ctx, "go")).To(Succeed())
		p.Test("draft").See(ctx, "withdrawn text")
		server.CloseClientConnections()
		close(broken)
		p.Test("draft").See(ctx, "the answer")
		Expect(p.Test("draft").Text(ctx)).NotTo(ContainSubstring("withdrawn"))
		close(goOn)
		p.By("log", "What happens in the thread").See(ctx, "The agent says: the answer is whole")
		p.By("log", "What happens in the thread").See(ctx, "The run succeeded.")
		p.Test("draft").Gone(ctx)
	}, SpecTimeout(5*patience))
})
