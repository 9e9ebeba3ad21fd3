package conformance

import (
	"context"
	"fmt"
	"image/png"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

// asksOf returns how many requests of a page had a part in their address.
func asksOf(p *chromium.Page, part string) int {
	n := 0
	for _, r := range p.Requests() {
		if strings.Contains(r.URL, part) {
			n++
		}
	}
	return n
}

var _ = Describe("The console's list of threads", func() {
	It("keeps the focus on a thread that moves, and its filter and its place when a thread was open", Label("CON-01", "CON-04"), func(ctx SpecContext) {
		const others = 60
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		more := make([]client.Object, others)
		for i := range more {
			more[i] = harness.NewThread(ns, fmt.Sprintf("other-%02d", i), "missing")
		}
		create(ctx, more...)
		p := openConsole(ctx, ns)
		p.Test("total").See(ctx, "61 threads")
		row := func(index int) *chromium.Locator { return p.CSS(fmt.Sprintf(`[aria-rowindex="%d"] a`, index+2)) }
		scrolled := func() float64 { return chromium.Eval[float64](ctx, p, `document.querySelector(".scroller").scrollTop`) }

		By("activity that moves the row with the focus out of sight")
		row(0).Focus(ctx)
		p.Press(ctx, "End")
		p.CSS(fmt.Sprintf(`[aria-rowindex="%d"] a:focus`, others+2)).Wait(ctx)
		Expect(p.Focused(ctx)).To(Equal(`link "thread"`), "the one that was made first")
		say(ctx, t, 1, "hello")
		p.CSS(`[aria-rowindex="2"] a:focus`).Wait(ctx)
		Expect(p.Focused(ctx)).To(Equal(`link "thread"`))
		Expect(scrolled()).To(BeNumerically(">", 0))
		p.Press(ctx, "ArrowDown")
		p.CSS(`[aria-rowindex="3"] a:focus`).Wait(ctx)

		By("numbers that are read out only when the viewer changes what is listed")
		Expect(p.Test("said").Text(ctx)).To(BeEmpty())
		p.By("searchbox", "Find threads by name, title, agent or user").Fill(ctx, "other-")
		p.By("group", "Only threads in these states").By("button", "Not ready 60").Click(ctx)
		p.Test("total").See(ctx, "60 threads")
		p.Test("said").See(ctx, "60 threads")

		By("coming back")
		row(0).Focus(ctx)
		p.Press(ctx, "End")
		p.CSS(fmt.Sprintf(`[aria-rowindex="%d"] a:focus`, others+1)).Wait(ctx)
		place := scrolled()
		Expect(place).To(BeNumerically(">", 0))
		name := chromium.Eval[string](ctx, p, `document.activeElement.textContent`)
		p.Press(ctx, "Enter")
		p.By("heading", name).Wait(ctx)
		chromium.Eval[any](ctx, p, `history.back()`)
		p.Test("total").See(ctx, "60 threads")
		Expect(p.By("searchbox", "Find threads by name, title, agent or user").Value(ctx)).To(Equal("other-"))
		Expect(p.By("button", "Not ready 60").Attribute(ctx, "aria-pressed")).To(Equal("true"))
		Eventually(ctx, scrolled).Should(Equal(place))
		p.By("link", name).Wait(ctx)
	}, SpecTimeout(5*patience))

	It("shows the namespace of the command, and another one that was chosen for as long as that command is the same", Label("CON-01"), func(ctx SpecContext) {
		a, b := namespace(ctx), namespace(ctx)
		create(ctx, harness.NewThread(a, "in-a", "missing"), harness.NewThread(b, "in-b", "missing"))
		port := strconv.Itoa(must(scratch.Port()))
		address, end := startConsole(ctx, "-n", a, "--port", port)
		p := chromium.Open(ctx, address)
		p.By("link", "in-a").Wait(ctx)
		choice := p.By("combobox", "Namespace")
		choice.Choose(ctx, "All namespaces")
		p.By("link", "in-b").Wait(ctx)
		p.Reload(ctx)
		p.By("link", "in-b").Wait(ctx)
		Expect(choice.Value(ctx)).To(BeEmpty())

		p.Allow("load", "WebSocket")
		end(ctx)
		address, _ = startConsole(ctx, "-n", b, "--port", port)
		p.Open(ctx, address)
		p.By("link", "in-b").Wait(ctx)
		Expect(choice.Value(ctx)).To(Equal(b))
	}, SpecTimeout(5*patience))

	It("names each effect in the title, and moves the focus to it", Label("CON-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, scheduled(ns, "leap", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: "none"}, Message: &skeinv1.EffectMessage{Content: "hello"}, Schedules: never}))
		p := openConsole(ctx, ns)
		title := func() string { return chromium.Eval[string](ctx, p, `document.title`) }
		focused := func() string { return p.Focused(ctx) }
		p.By("navigation", "Views").By("link", "Effects").Click(ctx)
		Eventually(ctx, focused).Should(Equal(`main "Effects"`))
		p.By("link", "leap").Click(ctx)
		Eventually(ctx, focused).Should(Equal(fmt.Sprintf(`main "Effect leap in %s"`, ns)))
		Eventually(ctx, title).Should(Equal(fmt.Sprintf("Effect leap in %s – Skein", ns)))
		p.By("link", "All effects").Click(ctx)
		Eventually(ctx, focused).Should(Equal(`main "Effects"`))
	}, SpecTimeout(5*patience))
})

var _ = Describe("The console's parts of a thread", func() {
	It("opens a file below the list, follows what is written to it, and returns the focus", Label("CON-01", "CON-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(t.WriteFile(ctx, "/report.txt", "text/plain", []byte("three orders"))).To(Succeed())
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		part(ctx, p, "Files")
		p.By("button", "Show /report.txt").Click(ctx)
		Eventually(ctx, func() string { return p.Focused(ctx) }).Should(Equal(`heading "/report.txt"`))
		p.Test("file-text").See(ctx, "three orders")
		Expect(t.WriteFile(ctx, "/report.txt", "text/plain", []byte("four orders, and a fifth"))).To(Succeed())
		p.Test("file-text").See(ctx, "four orders, and a fifth")
		p.By("button", "Close /report.txt").Click(ctx)
		Expect(p.Focused(ctx)).To(Equal(`button "Show /report.txt"`))
		p.Test("file-text").Gone(ctx)

		By("a picture")
		Expect(t.WriteFile(ctx, "/dot.png", "image/png", []byte(drawn(40, 20, png.Encode)))).To(Succeed())
		p.By("button", "Show /dot.png").Click(ctx)
		picture := p.CSS(`img[alt="Small picture of /dot.png"]`)
		Eventually(ctx, func() int { return chromium.Ask[int](ctx, picture, `function () { return this.naturalWidth }`) }).Should(Equal(40))
	}, SpecTimeout(5*patience))

	It("reads the files to the end while the thread changes", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(t.WriteFile(ctx, "/report.txt", "text/plain", []byte("three orders"))).To(Succeed())
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		p.See(ctx, "There is no message yet.")
		chromium.Eval[any](ctx, p, `(() => {
			const real = window.fetch;
			const released = new Promise((resolve) => (window.release = resolve));
			window.reads = 0;
			window.fetch = async (address, init) => {
				if (String(address).includes("/files?")) {
					window.reads++;
					await released;
				}
				return real(address, init);
			};
		})()`)
		part(ctx, p, "Files")
		p.See(ctx, "Reading files…")
		for i := range 3 {
			say(ctx, t, i+1, "hello")
			p.Test("fact-Messages").See(ctx, strconv.Itoa(2*i+2))
		}
		Expect(chromium.Eval[int](ctx, p, `window.reads`)).To(Equal(1))
		chromium.Eval[any](ctx, p, `window.release()`)
		p.By("link", "/report.txt").Wait(ctx)
		Expect(t.WriteFile(ctx, "/later.txt", "text/plain", []byte("more"))).To(Succeed())
		p.By("link", "/later.txt").Wait(ctx)
	}, SpecTimeout(5*patience))

	It("says when a run has more events than it draws, and ends what was at work with the last of them", Label("CON-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "hello")
		run := must(t.Runs(ctx))[0]
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		p.By("region", "Messages").See(ctx, "echo: hello")
		// A run of so many events would take minutes. The page gets them from a stream that is made up.
		chromium.Eval[any](ctx, p, fmt.Sprintf(`(() => {
			const run = %q, startedAt = %d;
			const send = (socket) => {
				const event = (seq, type, data) => socket.onmessage?.({ data: JSON.stringify({ seq, type, runId: run, data, createdAt: startedAt + seq * 1000 }) });
				socket.onopen?.({});
				event(1, "tool.started", { toolCallId: "call-1", name: "endless" });
				for (let seq = 2; seq <= 20_001; seq++) event(seq, "event:note", {});
			};
			window.WebSocket = class { constructor() { setTimeout(send, 0, this); } close() {} };
		})()`, run.ID, run.StartedAt))
		part(ctx, p, "Runs")
		p.See(ctx, "Only the first 20,000 events are drawn.")
		p.Test("span").Containing("Step 1: endless").See(ctx, "\n20 s")
		p.NotSee(ctx, "so far")
	}, SpecTimeout(5*patience))

	It("keeps the earlier runs that it has read while others come", Label("CON-01"), func(ctx SpecContext) {
		const first = 50
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		for i := range first + 2 {
			say(ctx, t, i+1, "hello")
		}
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		part(ctx, p, "Runs")
		rows := p.By("table", "Runs").CSS("tbody tr")
		count := func() int { return rows.Count(ctx) }
		Eventually(ctx, count).Should(Equal(first))
		p.By("button", "Earlier runs").Click(ctx)
		Eventually(ctx, count).Should(Equal(first + 2))
		p.By("button", "Earlier runs").Gone(ctx)
		say(ctx, t, first+3, "one more")
		Eventually(ctx, count).Should(Equal(first + 3))
		p.By("button", "Earlier runs").Gone(ctx)
		Expect(asksOf(p, "offset=50")).To(Equal(1), "only what was not there yet")
	}, SpecTimeout(10*patience))

	It("follows a run under way with one stream, however many steps it takes", Label("CON-02"), func(ctx SpecContext) {
		const steps = 4
		ns := namespace(ctx)
		goOn := make(chan struct{})
		server := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			select {
			case <-goOn:
			case <-r.Context().Done():
				return
			}
			made := 0
			for _, m := range req.Messages {
				if m.Role == "tool" {
					made++
				}
			}
			if made < steps {
				harness.CallTool(w, "m", fmt.Sprintf("call-%d", made), "set_value", `{"key":"a","value":1}`)
				return
			}
			harness.Say(w, "m", "done")
		})
		DeferCleanup(server.Close)
		t := converseWith(ctx, ns, harness.OpenAI(ns, "model", server.URL, ""), []string{"builtin:kv"})
		for i := range 200 {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: fmt.Sprintf("note %d", i)})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(t.Say(ctx, "go")).To(Succeed())
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		part(ctx, p, "Runs")
		spans := p.Test("span")
		spans.Containing("Step 1: model call").See(ctx, "so far")
		streams := asksOf(p, "/events?")
		next := func(ctx context.Context) {
			GinkgoHelper()
			select {
			case goOn <- struct{}{}:
			case <-ctx.Done():
				Fail("the model was not asked again")
			}
		}
		for i := range steps {
			next(ctx)
			spans.Containing(fmt.Sprintf("Step %d: set_value", i+1)).Wait(ctx)
			spans.Containing(fmt.Sprintf("Step %d: model call", i+2)).See(ctx, "so far")
		}
		next(ctx)
		p.By("table", "Runs").See(ctx, "succeeded")
		Eventually(ctx, func() int { return spans.Count(ctx) }).Should(Equal(1+2*steps+1), "the message, each step with its tool, and the last one")
		Expect(asksOf(p, "/events?")).To(Equal(streams))
	}, SpecTimeout(5*patience))

	It("marks an approval that was refused", Label("CON-02"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		Expect(t.Say(ctx, "first")).To(Succeed())
		p := openConsole(ctx, t.Namespace)
		openThread(ctx, p, "thread")
		part(ctx, p, "Runs")
		span := p.Test("span").Containing("approval of set_value")
		span.See(ctx, "so far")
		p.By("button", "Refuse set_value").Click(ctx)
		span.See(ctx, "failed")
	}, SpecTimeout(5*patience))
})
