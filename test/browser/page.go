package browser

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sourceroot"
)

// cleanupLimit bounds what happens to a page when its spec has ended.
const cleanupLimit = time.Minute

// Page is a tab. Its methods wait for what they need, as long as Eventually does, and fail the spec when it does not come.
type Page struct {
	ctx       context.Context
	close     func()
	watcher   *watcher
	downloads string // folder
}

// New opens an empty tab for the spec. It closes when the spec ends. Then the spec fails if the page had problems that Allow does not
// name. When the spec has failed, the report gets the text of the page, and build/reports/pages a picture of it.
func New(ctx context.Context) *Page {
	GinkgoHelper()
	c, err := current(ctx)
	Expect(err).NotTo(HaveOccurred())
	p := &Page{watcher: &watcher{byID: map[network.RequestID]*Request{}}}
	p.downloads, err = os.MkdirTemp(c.dir, "downloads-")
	Expect(err).NotTo(HaveOccurred())
	var once sync.Once
	tab, cancel := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx, p.close = tab, func() { once.Do(cancel) }
	stop := context.AfterFunc(ctx, p.close)
	err = chromedp.Do(tab)
	Expect(stop()).To(BeTrue(), "the spec ended while its page was opened")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.end, NodeTimeout(cleanupLimit))
	p.call(ctx, func(ctx context.Context) error {
		if _, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{}); err != nil {
			return err
		}
		_, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
			Behavior: browser.SetDownloadBehaviorBehaviorAllow, BrowserContextID: chromedp.FromContext(tab).BrowserContextID, DownloadPath: p.downloads,
		})
		return err
	})
	return p
}

// Open opens a tab and an address in it.
func Open(ctx context.Context, url string) *Page {
	GinkgoHelper()
	p := New(ctx)
	p.Open(ctx, url)
	return p
}

// listen records an event, and answers what would keep the page from going on.
func (p *Page) listen(event any) {
	p.watcher.note(event)
	if _, ok := event.(*page.EventJavascriptDialogOpening); ok {
		go func() { _, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) }()
	}
}

// end closes the tab of a spec that has ended.
func (p *Page) end(ctx SpecContext) {
	defer p.close()
	p.check(ctx)
}

// check fails the spec when the page had problems, and reports what the page was like when the spec has failed.
func (p *Page) check(ctx context.Context) {
	// An answer comes after all events that Chromium has sent before it.
	text, err := p.text(ctx)
	unexpected := p.watcher.unexpected()
	if !CurrentSpecReport().Failed() && len(unexpected) == 0 && err == nil {
		return
	}
	file, failed := p.picture(ctx)
	AddReportEntry("the page", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("picture: %s %v\nproblems: %q\ntext (%v):\n%s", file, failed, p.Problems(), err, text))
	Expect(err).NotTo(HaveOccurred(), "the page does not answer")
	Expect(unexpected).To(BeEmpty(), "the page had problems that the spec does not expect")
}

// notInNames are the characters that the names of pictures do not have.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// picture writes a picture of the page into the reports.
func (p *Page) picture(ctx context.Context) (string, error) {
	dir := filepath.Join(sourceroot.Dir(), "build", "reports", "pages")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	name := notInNames.ReplaceAllString(cmp.Or(CurrentSpecReport().FullText(), "page"), "-")
	f, err := os.CreateTemp(dir, name[:min(len(name), 100)]+"-*.png")
	if err != nil {
		return "", err
	}
	defer f.Close()
	ctx, cancel := p.bound(ctx)
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), err
}

// bound returns a context for commands to the tab that ends with ctx.
func (p *Page) bound(ctx context.Context) (context.Context, func()) {
	tab, cancel := context.WithCancelCause(p.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return tab, func() { stop(); cancel(nil) }
}

// call sends commands to the tab once, and fails the spec when that fails.
func (p *Page) call(ctx context.Context, commands func(context.Context) error) {
	GinkgoHelper()
	tab, cancel := p.bound(ctx)
	defer cancel()
	Expect(commands(tab)).To(Succeed())
}

// until sends commands to the tab until they succeed.
func (p *Page) until(ctx context.Context, commands func(context.Context) error) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		tab, cancel := p.bound(ctx)
		defer cancel()
		return commands(tab)
	}).Should(Succeed())
}

// Open opens an address and waits until it has loaded.
func (p *Page) Open(ctx context.Context, url string) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Navigate(url)) })
}

// Reload loads the page again.
func (p *Page) Reload(ctx context.Context) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Reload()) })
}

// Resize sets the size of the window, in CSS pixels.
func (p *Page) Resize(ctx context.Context, width, height int64) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.EmulateViewport(width, height)) })
}

// Prefer sets what the person prefers, such as "prefers-color-scheme" to "dark".
func (p *Page) Prefer(ctx context.Context, feature, value string) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}})
		return err
	})
}

// Eval evaluates an expression of JavaScript in the page. It awaits promises. The Content-Security-Policy of the page does not apply to the
// expression itself.
func Eval[T any](ctx context.Context, p *Page, expression string) T {
	GinkgoHelper()
	var value T
	p.call(ctx, func(ctx context.Context) (err error) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		return err
	})
	return value
}

// text returns the text of the page as a person sees it.
func (p *Page) text(ctx context.Context) (string, error) {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string](`document.body?.innerText ?? ""`))
}

// Text returns the text of the page as a person sees it now.
func (p *Page) Text(ctx context.Context) string {
	GinkgoHelper()
	text, err := p.text(ctx)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// See waits until the page shows a text.
func (p *Page) See(ctx context.Context, text string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) { return p.text(ctx) }).Should(ContainSubstring(text))
}

// NotSee waits until the page does not show a text.
func (p *Page) NotSee(ctx context.Context, text string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) { return p.text(ctx) }).ShouldNot(ContainSubstring(text))
}

// URL returns the address of the page now.
func (p *Page) URL(ctx context.Context) string {
	GinkgoHelper()
	return Eval[string](ctx, p, "location.href")
}

// Downloaded waits until a file of this name has been downloaded, and returns its content.
func (p *Page) Downloaded(ctx context.Context, name string) []byte {
	GinkgoHelper()
	file := filepath.Join(p.downloads, name)
	Eventually(ctx, func() ([]string, error) {
		entries, err := os.ReadDir(p.downloads)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, err
	}).Should(And(ContainElement(name), Not(ContainElement(HaveSuffix(".crdownload")))))
	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// Screenshot writes a picture of the window to a file in the format PNG.
func (p *Page) Screenshot(ctx context.Context, file string) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error {
		data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o644)
	})
}

// shorten returns the first lines of a text.
func shorten(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > 2000 {
		text = text[:2000] + " …"
	}
	return text
}
