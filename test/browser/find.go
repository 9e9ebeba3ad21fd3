package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Locator says how to find elements. It looks for them each time that it is used, so it outlives them.
type Locator struct {
	page  *Page
	steps []step
}

// step finds elements in an element, or keeps some of those that are found.
type step struct {
	role, name string
	selector   string
	containing string
}

func (s step) String() string {
	switch {
	case s.containing != "":
		return fmt.Sprintf("that contains %q", s.containing)
	case s.selector != "":
		return s.selector
	case s.name == "":
		return s.role
	}
	return fmt.Sprintf("%s %q", s.role, s.name)
}

func (l *Locator) String() string {
	words := make([]string, 0, len(l.steps))
	for _, s := range l.steps {
		words = append(words, s.String())
	}
	return strings.Join(words, " > ")
}

func (l *Locator) with(s step) *Locator { return &Locator{l.page, append(slices.Clone(l.steps), s)} }

// By finds the elements with a role and an accessible name, as a screen reader has them: By("button", "Send"). Without a name it finds all
// with the role. Elements that are hidden from screen readers are not found.
func (p *Page) By(role, name string) *Locator { return (&Locator{page: p}).By(role, name) }

// Test finds the elements whose attribute data-test has a value.
func (p *Page) Test(value string) *Locator { return (&Locator{page: p}).Test(value) }

// CSS finds the elements that a selector matches.
func (p *Page) CSS(selector string) *Locator { return (&Locator{page: p}).CSS(selector) }

// By finds elements within those of l, as By of Page does: By("row", "").Containing("orders").By("button", "Approve").
func (l *Locator) By(role, name string) *Locator { return l.with(step{role: role, name: name}) }

// Test finds elements within those of l whose attribute data-test has a value.
func (l *Locator) Test(value string) *Locator {
	return l.with(step{selector: fmt.Sprintf("[data-test=%q]", value)})
}

// CSS finds elements within those of l that a selector matches.
func (l *Locator) CSS(selector string) *Locator { return l.with(step{selector: selector}) }

// Containing keeps those elements of l whose text contains a part.
func (l *Locator) Containing(part string) *Locator { return l.with(step{containing: part}) }

// find returns the elements that are there now.
func (l *Locator) find(ctx context.Context) ([]cdp.BackendNodeID, error) {
	document, err := chromedp.Call(ctx, dom.GetDocument, dom.GetDocumentParams{})
	if err != nil {
		return nil, err
	}
	nodes := []cdp.BackendNodeID{document.Root.BackendNodeID}
	for _, s := range l.steps {
		var found []cdp.BackendNodeID
		for _, n := range nodes {
			more, err := s.in(ctx, n)
			if err != nil {
				return nil, err
			}
			for _, m := range more {
				if !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
		}
		nodes = found
	}
	return nodes, nil
}

// in returns what the step finds in an element.
func (s step) in(ctx context.Context, node cdp.BackendNodeID) ([]cdp.BackendNodeID, error) {
	switch {
	case s.containing != "":
		has, err := ask[bool](ctx, node, `function (part) { return this.innerText.includes(part) }`, s.containing)
		if err != nil || !has {
			return nil, err
		}
		return []cdp.BackendNodeID{node}, nil
	case s.selector != "":
		return s.selected(ctx, node)
	}
	result, err := chromedp.Call(ctx, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{BackendNodeID: node, Role: s.role, AccessibleName: s.name})
	if err != nil {
		return nil, err
	}
	var found []cdp.BackendNodeID
	for _, n := range result.Nodes {
		if !n.Ignored && n.BackendDOMNodeID != node {
			found = append(found, n.BackendDOMNodeID)
		}
	}
	return found, nil
}

// selected returns the elements in an element that the selector of the step matches.
func (s step) selected(ctx context.Context, node cdp.BackendNodeID) ([]cdp.BackendNodeID, error) {
	object, release, err := resolve(ctx, node)
	if err != nil {
		return nil, err
	}
	defer release()
	array, err := call(ctx, object, false, `function (selector) { return [...this.querySelectorAll(selector)] }`, s.selector)
	if err != nil {
		return nil, err
	}
	properties, err := chromedp.Call(ctx, runtime.GetProperties, runtime.GetPropertiesParams{ObjectID: array.ObjectID, OwnProperties: yes})
	if err != nil {
		return nil, err
	}
	var found []cdp.BackendNodeID
	for _, p := range properties.Result {
		if p.Value == nil || p.Value.Subtype != runtime.RemoteObjectSubtypeNode {
			continue
		}
		n, err := chromedp.Call(ctx, dom.DescribeNode, dom.DescribeNodeParams{ObjectID: p.Value.ObjectID})
		if err != nil {
			return nil, err
		}
		found = append(found, n.Node.BackendNodeID)
	}
	return found, nil
}

// one returns the element, if there is exactly one now.
func (l *Locator) one(ctx context.Context) (cdp.BackendNodeID, error) {
	found, err := l.find(ctx)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l, err)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	text, _ := l.page.text(ctx)
	return 0, fmt.Errorf("%d elements are %s; the page shows:\n%s", len(found), l, shorten(text))
}

// objects is the group of the objects that are resolved, which are released together.
const objects = "skein"

var yes = func() *bool { b := true; return &b }()

// resolve returns an element as an object of JavaScript.
func resolve(ctx context.Context, node cdp.BackendNodeID) (runtime.RemoteObjectID, func(), error) {
	r, err := chromedp.Call(ctx, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: node, ObjectGroup: objects})
	if err != nil {
		return "", nil, err
	}
	return r.Object.ObjectID, func() {
		_, _ = chromedp.Call(ctx, runtime.ReleaseObjectGroup, runtime.ReleaseObjectGroupParams{ObjectGroup: objects})
	}, nil
}

// call calls a function of JavaScript with an object as this.
func call(ctx context.Context, object runtime.RemoteObjectID, byValue bool, function string, args ...any) (*runtime.RemoteObject, error) {
	params := runtime.CallFunctionOnParams{ObjectID: object, FunctionDeclaration: function, ObjectGroup: objects, ReturnByValue: &byValue, AwaitPromise: yes}
	for _, a := range args {
		data, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: data})
	}
	r, err := chromedp.Call(ctx, runtime.CallFunctionOn, params)
	if err != nil {
		return nil, err
	}
	if r.ExceptionDetails != nil {
		return nil, fmt.Errorf("%s", exceptionText(r.ExceptionDetails))
	}
	return r.Result, nil
}

// ask calls a function of JavaScript with an element as this, and returns its value.
func ask[T any](ctx context.Context, node cdp.BackendNodeID, function string, args ...any) (value T, err error) {
	object, release, err := resolve(ctx, node)
	if err != nil {
		return value, err
	}
	defer release()
	r, err := call(ctx, object, true, function, args...)
	if err != nil || len(r.Value) == 0 {
		return value, err
	}
	return value, json.Unmarshal(r.Value, &value)
}

// Wait waits until there is exactly one such element.
func (l *Locator) Wait(ctx context.Context) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		_, err := l.one(ctx)
		return err
	})
}

// Gone waits until there is no such element.
func (l *Locator) Gone(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() (int, error) { return l.count(ctx) }).Should(BeZero(), "elements that are %s", l)
}

// Count returns how many there are now.
func (l *Locator) Count(ctx context.Context) int {
	GinkgoHelper()
	n, err := l.count(ctx)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func (l *Locator) count(ctx context.Context) (int, error) {
	tab, cancel := l.page.bound(ctx)
	defer cancel()
	found, err := l.find(tab)
	return len(found), err
}

// Ask waits until there is exactly one such element, and calls a function of JavaScript with it as this, such as
// Ask[bool](ctx, l, `function () { return this.checked }`).
func Ask[T any](ctx context.Context, l *Locator, function string, args ...any) T {
	GinkgoHelper()
	var value T
	l.page.until(ctx, func(ctx context.Context) error {
		node, err := l.one(ctx)
		if err == nil {
			value, err = ask[T](ctx, node, function, args...)
		}
		return err
	})
	return value
}

// Text returns the text of the element as a person sees it.
func (l *Locator) Text(ctx context.Context) string {
	GinkgoHelper()
	return Ask[string](ctx, l, `function () { return this.innerText }`)
}

// Value returns what a field contains.
func (l *Locator) Value(ctx context.Context) string {
	GinkgoHelper()
	return Ask[string](ctx, l, `function () { return this.value }`)
}

// Attribute returns an attribute of the element, or "" where it has none.
func (l *Locator) Attribute(ctx context.Context, name string) string {
	GinkgoHelper()
	return Ask[string](ctx, l, `function (name) { return this.getAttribute(name) ?? "" }`, name)
}

// See waits until the text of the element contains a part.
func (l *Locator) See(ctx context.Context, part string) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		node, err := l.one(ctx)
		if err != nil {
			return err
		}
		text, err := ask[string](ctx, node, `function () { return this.innerText }`)
		if err == nil && !strings.Contains(text, part) {
			err = fmt.Errorf("%s does not show %q, but:\n%s", l, part, shorten(text))
		}
		return err
	})
}

// focused describes the element that has the focus.
func focused(ctx context.Context) (string, error) {
	object, err := chromedp.Run(ctx, chromedp.Evaluate[*runtime.RemoteObject](`document.activeElement ?? document.body`, chromedp.EvalObjectGroup(objects)))
	if err != nil {
		return "", err
	}
	tree, err := chromedp.Call(ctx, accessibility.GetPartialAXTree, accessibility.GetPartialAXTreeParams{ObjectID: object.ObjectID, FetchRelatives: new(bool)})
	if err != nil || len(tree.Nodes) == 0 {
		return "", err
	}
	var role, name string
	for to, from := range map[*string]*accessibility.Value{&role: tree.Nodes[0].Role, &name: tree.Nodes[0].Name} {
		if from != nil {
			if err := json.Unmarshal(from.Value, to); err != nil {
				return "", err
			}
		}
	}
	return step{role: role, name: name}.String(), nil
}
