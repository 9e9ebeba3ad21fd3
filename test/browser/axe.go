package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
)

// Finding is a rule of axe-core that a page breaks.
type Finding struct {
	ID     string `json:"id"`     // the rule, such as color-contrast
	Impact string `json:"impact"` // minor, moderate, serious or critical
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"` // how to mend it
	} `json:"nodes"`
}

func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s", f.ID, f.Impact, f.Help)
	for _, n := range f.Nodes {
		fmt.Fprintf(&b, "\n  %s\n    %s", n.HTML, strings.ReplaceAll(n.Summary, "\n", "\n    "))
	}
	return b.String()
}

// axe returns the source of axe-core, which hack/npm/console pins.
var axe = sync.OnceValues(func() (string, error) {
	dir, err := script("npm.sh", "install", "console")
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(source), err
})

// Axe checks the page as it is now for accessibility, and returns the rules that it breaks. It runs in a world of its own, so the page
// does not see it, and the Content-Security-Policy of the page does not apply to it.
func (p *Page) Axe(ctx context.Context) []Finding {
	GinkgoHelper()
	var findings []Finding
	p.call(ctx, func(ctx context.Context) error {
		source, err := axe()
		if err != nil {
			return err
		}
		frames, err := chromedp.Call(ctx, page.GetFrameTree, cdp.Empty{})
		if err != nil {
			return err
		}
		world, err := chromedp.Call(ctx, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: frames.FrameTree.Frame.ID, WorldName: "axe"})
		if err != nil {
			return err
		}
		within := func(params *runtime.EvaluateParams) { params.ContextID = world.ExecutionContextID }
		if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](source, within)); err != nil {
			return fmt.Errorf("load axe-core: %w", err)
		}
		findings, err = chromedp.Run(ctx, chromedp.Evaluate[[]Finding](`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`,
			within, chromedp.EvalAwaitPromise))
		return err
	})
	return findings
}
