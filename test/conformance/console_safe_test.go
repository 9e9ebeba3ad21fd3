package conformance

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

// hostileTexts would run code, load something, or lead somewhere, if a page took them for more than text.
var hostileTexts = []string{
	`<script>window.pwned = 1</script>`,
	`<img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>`,
	`<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe><object data="https://evil.example/x"></object>`,
	`[click me](javascript:window.pwned=5) [data](data:text/html,<script>pwned=6</script>) [file](file:///etc/passwd) [view](#/effects)`,
	`![beacon](https://evil.example/beacon.png?who=me) <https://evil.example/auto>`,
	`<style>body { display: none }</style><link rel=stylesheet href=https://evil.example/x.css><meta http-equiv=refresh content="0;url=https://evil.example">`,
	"```html\n<script>window.pwned = 7</script>\n```",
	`<form action="https://evil.example"><input name=a><button>Approve</button></form>`,
	`[^1] and {{constructor.constructor("window.pwned = 8")()}} ${window.pwned = 9}` + "\n\n[^1]: <img src=x onerror=pwned=10>",
}

var _ = Describe("The console and what it shows", Label("CON-04"), func() {
	It("never runs what is in a conversation, and asks no other server", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadSpec) { s.Title = `<b onclick=pwned=11>Title</b>` })
		for i, text := range hostileTexts {
			role := []string{"user", "assistant", "system"}[i%3]
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: role, Content: text, Name: ""})
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := t.Inject(ctx, runtimev1.NewMessage{Role: "assistant", ToolCalls: []runtimev1.ToolCall{{ID: "call-1", Name: "x", Arguments: `{"a":"` + `<img src=x onerror=pwned=12>` + `"}`}}})
		Expect(err).NotTo(HaveOccurred())
		_, err = t.Inject(ctx, runtimev1.NewMessage{Role: "tool", ToolCallID: "call-1", Name: "x", Content: `<script>pwned=13</script>`})
		Expect(err).NotTo(HaveOccurred())
		page := []byte(`<!doctype html><script>document.title = "pwned"; window.pwned = 14; fetch("/api/session")</script><h1>A page</h1>`)
		Expect(t.WriteFile(ctx, "/page.html", "text/html", page)).To(Succeed())
		Expect(t.WriteFile(ctx, "/picture.svg", "image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="pwned=15"><script>pwned=16</script></svg>`))).To(Succeed())
		Expect(t.SetValue(ctx, "<img src=x onerror=pwned=17>", `"<script>pwned=18</script>"`)).To(Succeed())

		p := openConsole(ctx, ns)
		p.By("link", `<b onclick=pwned=11>Title</b>`).Click(ctx)
		messages := p.By("region", "Messages")
		messages.See(ctx, `<script>window.pwned = 1</script>`)
		messages.See(ctx, `image: beacon`)
		p.Test("tool-call").CSS("summary").Click(ctx)
		p.Test("tool-result").See(ctx, `<script>pwned=13</script>`)
		Expect(chromium.Ask[int](ctx, messages, `function () { return this.querySelectorAll("script, img, iframe, object, embed, svg, style, link, meta, form, [onerror], [onload], [onclick]").length }`)).To(BeZero())
		Expect(chromium.Ask[[]string](ctx, messages, `function () { return [...this.querySelectorAll(".markdown a")].map((a) => a.getAttribute("href")) }`)).
			To(ConsistOf("https://evil.example/beacon.png?who=me", "https://evil.example/auto"))
		Expect(chromium.Ask[[]string](ctx, messages, `function () { return [...this.querySelectorAll(".markdown a")].map((a) => a.rel + " " + a.target) }`)).
			To(HaveEach("noopener noreferrer nofollow _blank"))

		By("files and values")
		part(ctx, p, "Files")
		p.By("button", "Show /page.html").Click(ctx)
		p.Test("file-text").See(ctx, `<script>document.title = "pwned"`)
		p.By("button", "Show /picture.svg").Click(ctx)
		p.Test("file-text").See(ctx, `onload="pwned=15"`)
		p.By("link", "/page.html").Click(ctx)
		Expect(p.Downloaded(ctx, "page.html")).To(Equal(page), "it is saved, not opened")
		part(ctx, p, "State")
		p.By("region", "Key-values").See(ctx, `<script>pwned=18</script>`)

		Expect(chromium.Eval[string](ctx, p, `String(window.pwned)`)).To(Equal("undefined"))
		Expect(chromium.Eval[string](ctx, p, `document.title`)).NotTo(ContainSubstring("pwned"))
		Expect(p.Hosts()).To(Equal([]string{"127.0.0.1"}))

		By("a file that is opened by its address")
		address, err := url.Parse(p.URL(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(chromium.Eval[string](ctx, p, fmt.Sprintf(`fetch("/apis/runtime.skein.dev/v1alpha1/namespaces/%s/threads/thread/files/page.html").then((r) => [r.headers.get("content-security-policy"), r.headers.get("content-disposition").split(";")[0], r.headers.get("x-content-type-options")].join(" | "))`, ns))).
			To(Equal("sandbox; default-src 'none' | attachment | nosniff"))
		Expect(address.RawQuery).NotTo(ContainSubstring("token"), "the address that stays in the history has no token")
	}, SpecTimeout(5*patience))

	It("keeps other sites and other users of the machine out", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		address, err := url.Parse(serveConsole(ctx, "-n", ns))
		Expect(err).NotTo(HaveOccurred())
		base := "http://" + address.Host
		ask := func(c *http.Client, method, path string, edit func(*http.Request)) (int, string) {
			GinkgoHelper()
			r, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(`{"content":"forged"}`))
			Expect(err).NotTo(HaveOccurred())
			r.Header.Set("Content-Type", "application/json")
			if edit != nil {
				edit(r)
			}
			res, err := c.Do(r)
			Expect(err).NotTo(HaveOccurred())
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			Expect(err).NotTo(HaveOccurred())
			return res.StatusCode, string(body)
		}
		queue := "/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/thread/queue"
		stranger := &http.Client{}
		for _, path := range []string{"/", "/api/session", "/api/rights?namespace=" + ns, queue} {
			code, body := ask(stranger, http.MethodGet, path, nil)
			Expect(code).To(Equal(http.StatusUnauthorized), "%s: %s", path, body)
		}
		code, _ := ask(stranger, http.MethodGet, "/login?token=guessed", nil)
		Expect(code).To(Equal(http.StatusForbidden))

		By("a browser that has the cookie, and a page of another site in it")
		jar, err := cookiejar.New(nil)
		Expect(err).NotTo(HaveOccurred())
		browser := &http.Client{Jar: jar}
		code, body := ask(browser, http.MethodGet, address.RequestURI(), nil)
		Expect(code).To(Equal(http.StatusOK), body)
		code, _ = ask(browser, http.MethodGet, "/api/session", nil)
		Expect(code).To(Equal(http.StatusOK))
		code, body = ask(browser, http.MethodPost, queue, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })
		Expect(code).To(Equal(http.StatusForbidden), body)
		code, body = ask(browser, http.MethodPost, queue, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		Expect(code).To(Equal(http.StatusForbidden), body)
		code, body = ask(browser, http.MethodGet, "/api/session", func(r *http.Request) { r.Host = "evil.example" })
		Expect(code).To(BeNumerically(">=", 400), body)
		code, body = ask(browser, http.MethodGet, "/api/live?namespace="+ns, func(r *http.Request) {
			r.Header.Set("Origin", "https://evil.example")
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-WebSocket-Version", "13")
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		})
		Expect(code).To(Equal(http.StatusForbidden), body)
		Expect(must(t.Messages(ctx))).To(BeEmpty())

		By("what the page does not use")
		for _, path := range []string{
			"/api/v1/namespaces/" + ns + "/secrets", "/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/thread/env",
			"/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/thread/files/..%2F..%2F..%2F..%2F..%2F..%2F..%2Fapi%2Fv1%2Fsecrets",
			"/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/thread/messages/%2e%2e/%2e%2e/env", "/version",
		} {
			code, body := ask(browser, http.MethodGet, path, nil)
			Expect(code).To(BeNumerically(">=", 400), "%s: %s", path, body)
			Expect(body).NotTo(ContainSubstring(`"items"`))
		}
	}, SpecTimeout(5*patience))

	It("is used by keyboard alone, and tells screen readers what happens", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.NewThread(ns, "second", "agent"), harness.NewThread(ns, "third", "agent"))
		ready(ctx, cluster.Thread(ns, "second"))
		ready(ctx, cluster.Thread(ns, "third"))
		say(ctx, t, 1, "newest")
		p := openConsole(ctx, ns)
		p.Test("total").See(ctx, "3 threads")
		p.Press(ctx, "Tab")
		Expect(p.Focused(ctx)).To(Equal(`link "Skip to the content"`))
		p.Press(ctx, "Enter", "Tab")
		Expect(p.Focused(ctx)).To(ContainSubstring("Find threads"))

		By("moving in the list")
		p.By("link", "thread").Focus(ctx)
		p.Press(ctx, "Home")
		rows := p.Test("thread-row")
		focused := func(i int) func() bool {
			return func() bool {
				return chromium.Eval[bool](ctx, p, fmt.Sprintf(`document.activeElement.closest('[role="row"]')?.getAttribute("aria-rowindex") === "%d"`, i+2))
			}
		}
		Eventually(ctx, focused(0)).Should(BeTrue())
		for i, key := range []string{"ArrowDown", "ArrowDown", "ArrowUp", "End", "PageUp", "PageDown"} {
			p.Press(ctx, key)
			Eventually(ctx, focused([]int{1, 2, 1, 2, 0, 2}[i])).Should(BeTrue(), key)
		}
		Expect(rows.Count(ctx)).To(Equal(3))
		p.By("link", "thread").Focus(ctx)
		p.Press(ctx, "Enter")
		p.By("heading", "thread").Wait(ctx)

		By("writing")
		p.By("textbox", "Message to thread").Focus(ctx)
		p.Type(ctx, "by keyboard")
		p.Press(ctx, "Enter")
		p.By("log", "What happens in the thread").See(ctx, "The run succeeded.")

		By("a dialog, which Escape closes")
		p.By("region", "Messages").CSS(".message").Containing("echo: newest").CSS(".actions button").Focus(ctx)
		p.Press(ctx, "Enter")
		p.By("dialog", "Fork the thread at this message").Wait(ctx)
		p.Press(ctx, "Escape")
		p.By("dialog", "Fork the thread at this message").Gone(ctx)
		Expect(p.Focused(ctx)).To(ContainSubstring("Fork at the message of the agent"))
	}, SpecTimeout(5*patience))

	It("has no fault that axe finds, in light and in dark", func(ctx SpecContext) {
		t := approvedValues(ctx)
		ns := t.Namespace
		Expect(t.WriteFile(ctx, "/report.txt", "text/plain", []byte("three orders"))).To(Succeed())
		Expect(t.SetValue(ctx, "color", `"red"`)).To(Succeed())
		create(ctx, scheduled(ns, "leap", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "?"}, Schedules: never, Suspend: true}))
		Expect(t.Say(ctx, "first")).To(Succeed())
		p := openConsole(ctx, ns)
		p.By("navigation", "Views").By("link", "Approvals (1)").Wait(ctx)
		thread := "#/threads/" + ns + "/thread"
		views := []struct{ address, shows string }{
			{"#/threads", "WaitingForApproval"}, {thread, "set_value waits for approval"}, {thread + "/runs", "approval of set_value"}, {thread + "/family", "no subagents"},
			{thread + "/files", "/report.txt"}, {thread + "/state", "color"}, {"#/approvals", "set_value waits for approval"}, {"#/effects", "leap"}, {"#/effects/" + ns + "/leap", "Next times"},
		}
		for _, scheme := range []string{"light", "dark"} {
			p.Prefer(ctx, "prefers-color-scheme", scheme)
			for _, v := range views {
				chromium.Eval[string](ctx, p, fmt.Sprintf("location.hash = %q", v.address))
				p.See(ctx, v.shows)
				Expect(p.Axe(ctx)).To(BeEmpty(), "%s in %s", v.address, scheme)
			}
		}
	}, SpecTimeout(5*patience))
})
