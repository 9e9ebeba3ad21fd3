package browser

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sourceroot"
)

func TestBrowser(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(25 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Browser")
}

var _ = BeforeSuite(func() { DeferCleanup(Stop) })

// strict is the policy of the console's page.
const strict = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// serve serves a page with a script under a policy, and returns its address.
func serve(policy, body, script string) string {
	GinkgoHelper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if policy != "" {
			w.Header().Set("Content-Security-Policy", policy)
		}
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="/icon.svg"></head><body><main><h1>A page</h1>%s</main>`+
				`<script src="/script.js"></script></body></html>`, body)
		case "/script.js":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(w, script)
		case "/icon.svg":
			w.WriteHeader(http.StatusNoContent)
		case "/file":
			w.Header().Set("Content-Disposition", `attachment; filename="orders.csv"`)
			_, _ = io.WriteString(w, "a,b\n")
		default:
			http.NotFound(w, r)
		}
	}))
	DeferCleanup(s.Close)
	return s.URL
}

// kind matches the problems of a kind whose text contains a part.
func kind(kind, part string) OmegaMatcher {
	return And(HaveField("Kind", kind), HaveField("Text", ContainSubstring(part)))
}

var _ = Describe("a page in the browser", func() {
	It("does not type a character whose key the page has prevented", func(ctx SpecContext) {
		p := Open(ctx, serve(strict, `<label>Text <textarea id="text"></textarea></label><p id="out" data-test="out"></p>`, `
			document.getElementById("text").addEventListener("keydown", (e) => {
				if (e.key !== "Enter" || e.shiftKey) return;
				e.preventDefault();
				document.getElementById("out").textContent = "sent";
			});`))
		text := p.By("textbox", "Text")
		text.Press(ctx, "a", "Shift+Enter", "b", "Enter")
		p.Test("out").See(ctx, "sent")
		Expect(text.Value(ctx)).To(Equal("a\nb"))
	})

	It("is driven by the roles and names of its elements", func(ctx SpecContext) {
		p := Open(ctx, serve(strict, `
			<label for="name">Name</label><input id="name" value="old">
			<label>Colour <select id="colour"><option value="r">Red</option><option value="b">Blue</option></select></label>
			<button id="send" disabled>Send</button><button hidden>Send</button><button>Other</button>
			<ul><li>orders <button>Approve</button></li><li>stock <button>Approve</button></li></ul>
			<a href="/file" download>Download</a>
			<p id="out" data-test="out"></p>`, `
			const of = (id) => document.getElementById(id);
			setTimeout(() => { of("send").disabled = false; }, 50);
			of("send").addEventListener("click", () => { of("out").textContent = "sent " + of("name").value + " " + of("colour").value; });
			document.addEventListener("keydown", (e) => { if (e.ctrlKey && e.key === "Enter") of("out").textContent = "shortcut"; });
			for (const b of document.querySelectorAll("li button")) b.addEventListener("click", () => { of("out").textContent = "approved " + b.parentElement.firstChild.data; });
			`))
		p.By("textbox", "Name").Fill(ctx, "new")
		p.By("textbox", "Name").Type(ctx, " name")
		p.By("combobox", "Colour").Choose(ctx, "Blue")
		p.By("button", "Send").Click(ctx) // once it is enabled
		p.See(ctx, "sent new name b")
		Expect(p.Test("out").Text(ctx)).To(Equal("sent new name b"))
		Expect(p.By("textbox", "Name").Value(ctx)).To(Equal("new name"))

		Expect(p.By("button", "Approve").Count(ctx)).To(Equal(2))
		p.By("listitem", "").Containing("stock").By("button", "Approve").Click(ctx)
		p.CSS("#out").See(ctx, "approved stock")
		p.NotSee(ctx, "sent")

		p.By("textbox", "Name").Press(ctx, "Tab", "Tab")
		Expect(p.Focused(ctx)).To(Equal(`button "Send"`))
		p.Press(ctx, "Enter")
		p.See(ctx, "sent new name b")
		p.Press(ctx, "Control+Enter")
		p.See(ctx, "shortcut")
		p.By("button", "Missing").Gone(ctx)

		p.By("link", "Download").Click(ctx)
		Expect(string(p.Downloaded(ctx, "orders.csv"))).To(Equal("a,b\n"))
		Expect(p.Hosts()).To(Equal([]string{"127.0.0.1"}))
		Expect(p.Problems()).To(BeEmpty())
	})

	It("does not click what is disabled, covered, or there twice", func(ctx SpecContext) {
		p := Open(ctx, serve("", `<button disabled>Off</button><button>Twice</button><button>Twice</button>
			<button>Below</button><div style="position: fixed; inset: 0">above</div>`, ""))
		for name, why := range map[string]string{"Off": "is disabled", "Twice": "2 elements are", "Below": "is covered by <div", "None": "0 elements are"} {
			tab, cancel := p.bound(ctx)
			_, _, err := p.By("button", name).middle(tab)
			cancel()
			Expect(err).To(MatchError(ContainSubstring(why)), name)
		}
	})

	It("reports what a policy blocks, and what nothing catches", func(ctx SpecContext) {
		p := Open(ctx, serve(strict, `<p id="p"></p><button id="b">Break</button><img src="http://127.0.0.2/none.png" alt="">`, `
			try { document.getElementById("p").innerHTML = "<b>x</b>"; } catch {}
			document.getElementById("b").addEventListener("click", () => { throw new Error("broken on purpose"); });
			Promise.reject(new Error("rejected on purpose"));
			console.error("told", { of: "something" });
			fetch("/none");
			alert("hello");`))
		p.By("button", "Break").Click(ctx)
		Eventually(ctx, p.Problems).Should(And(
			ContainElement(kind(Violation, "require-trusted-types-for")),
			ContainElement(kind(Violation, "img-src")),
			ContainElement(kind(Exception, "broken on purpose")),
			ContainElement(kind(Exception, "rejected on purpose")),
			ContainElement(kind(Console, "told")),
			ContainElement(kind(Load, "/none: ")),
			ContainElement(kind(Dialog, "hello")),
		))
		Expect(p.watcher.unexpected()).To(HaveLen(len(p.Problems())))
		p.Allow("violation: ", "on purpose", "told", "404", "hello")
		Expect(p.watcher.unexpected()).To(BeEmpty())
	})

	It("fails a spec whose page had a problem, with a picture of the page", func(ctx SpecContext) {
		p := New(ctx)
		p.Open(ctx, serve("", "", `console.error("told")`))
		pictures := func() []string {
			files, err := filepath.Glob(filepath.Join(sourceroot.Dir(), "build", "reports", "pages", "*with-a-picture-of-the-page*.png"))
			Expect(err).NotTo(HaveOccurred())
			return files
		}
		before := pictures()
		Expect(InterceptGomegaFailures(func() { p.check(ctx) })).To(ConsistOf(And(ContainSubstring("does not expect"), ContainSubstring("told"))))
		after := pictures()
		Expect(after).To(HaveLen(len(before) + 1))
		for _, file := range after {
			Expect(os.Remove(file)).To(Succeed())
		}
		p.Allow("console: told")
		Expect(InterceptGomegaFailures(func() { p.check(ctx) })).To(BeEmpty())
	})

	It("sends nothing to other hosts, and records what the page tried", func(ctx SpecContext) {
		p := Open(ctx, serve("", "", `
			fetch("http://example.com/a").catch(() => fetch("http://192.0.2.1/b")).catch(() => new WebSocket("ws://example.org/c"))`))
		p.Allow("load: ", "console: ")
		Eventually(ctx, p.Requests).Should(ContainElement(HaveField("URL", "ws://example.org/c")))
		Expect(p.Hosts()).To(Equal([]string{"127.0.0.1", "192.0.2.1", "example.com", "example.org"}))
		for _, address := range []string{"http://example.com/a", "http://192.0.2.1/b"} {
			Expect(p.Requests()).To(ContainElement(Request{Method: "GET", URL: address, Error: "net::ERR_NAME_NOT_RESOLVED"}))
		}
	})

	It("records what a policy kept from being sent", func(ctx SpecContext) {
		p := Open(ctx, serve(strict, "", `fetch("http://127.0.0.2/").catch(() => { document.title = "refused"; })`))
		p.Allow("violation: connect-src", "console: ")
		Eventually(ctx, func() string { return Eval[string](ctx, p, "document.title") }).Should(Equal("refused"))
		Expect(p.Problems()).To(ContainElement(kind(Violation, "connect-src: kURLViolation http://127.0.0.2/")))
	})

	It("is checked for accessibility under any policy", func(ctx SpecContext) {
		p := Open(ctx, serve(strict, `<input id="i"><button>Send</button>`, ""))
		findings := p.Axe(ctx)
		Expect(findings).To(ConsistOf(HaveField("ID", "label")))
		Expect(findings[0].String()).To(ContainSubstring(`<input id="i">`))
		Eval[any](ctx, p, `document.getElementById("i").setAttribute("aria-label", "Name")`)
		Expect(p.Axe(ctx)).To(BeEmpty())
		Expect(Eval[bool](ctx, p, `"axe" in window`)).To(BeFalse(), "the page sees axe-core")
		Expect(p.Problems()).To(BeEmpty())
	})

	It("has cookies of its own", func(ctx SpecContext) {
		address := serve("", "", "")
		one, two := Open(ctx, address), Open(ctx, address)
		Eval[any](ctx, one, `document.cookie = "a=b"`)
		Expect(Eval[string](ctx, one, `document.cookie`)).To(Equal("a=b"))
		Expect(Eval[string](ctx, two, `document.cookie`)).To(BeEmpty())
	})

	It("is shown in other sizes and colours, and in a picture", func(ctx SpecContext) {
		p := Open(ctx, serve("", "", ""))
		p.Resize(ctx, 400, 600)
		p.Prefer(ctx, "prefers-color-scheme", "dark")
		Expect(Eval[[]int](ctx, p, `[innerWidth, innerHeight]`)).To(Equal([]int{400, 600}))
		Expect(Eval[bool](ctx, p, `matchMedia("(prefers-color-scheme: dark)").matches`)).To(BeTrue())
		file := filepath.Join(GinkgoT().TempDir(), "page.png")
		p.Screenshot(ctx, file)
		Expect(os.ReadFile(file)).To(HavePrefix("\x89PNG"))
	})
})

// In a container of its own, so that no page is open when it stops the browser.
var _ = Describe("Stop", func() {
	It("leaves no process and no file, and a later spec gets another browser", func(ctx SpecContext) {
		Expect(Stop()).To(Succeed())
		first, err := current(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(mentioning(first.dir)).NotTo(BeEmpty())
		Expect(Stop()).To(Succeed())
		Expect(mentioning(first.dir)).To(BeEmpty())
		Expect(first.dir).NotTo(BeADirectory())
		Expect(Stop()).To(Succeed(), "a second time")
		second, err := current(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(second.dir).NotTo(Equal(first.dir))
	})

	It("also ends a browser that has crashed", func(ctx SpecContext) {
		Expect(Stop()).To(Succeed())
		first, err := current(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(first.process().Kill()).To(Succeed())
		Eventually(ctx, first.ctx.Done()).Should(BeClosed())
		second, err := current(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(mentioning(first.dir)).To(BeEmpty())
		Expect(first.dir).NotTo(BeADirectory())
		Expect(second.ctx.Err()).NotTo(HaveOccurred())
	})

	It("is not needed when the browser could not start", func(ctx SpecContext) {
		Expect(Stop()).To(Succeed())
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err := current(over)
		Expect(err).To(MatchError(context.Canceled))
		Expect(Stop()).To(Succeed())
	})
})

// mentioning returns the command lines of the processes that a folder stands in the command or the environment of.
func mentioning(dir string) []string {
	GinkgoHelper()
	var found []string
	for _, name := range []string{"cmdline", "environ"} {
		files, err := filepath.Glob("/proc/[0-9]*/" + name)
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(dir)) {
				command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
				found = append(found, string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
			}
		}
	}
	return found
}
