package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Click waits until there is exactly one such element, which is enabled and which nothing covers, and clicks in its middle.
func (l *Locator) Click(ctx context.Context) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		x, y, err := l.middle(ctx)
		if err != nil {
			return err
		}
		for _, kind := range []input.DispatchMouseEventType{input.DispatchMouseEventTypeMouseMoved, input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased} {
			event := input.DispatchMouseEventParams{Type: kind, X: x, Y: y}
			if kind != input.DispatchMouseEventTypeMouseMoved {
				event.Button, event.ClickCount = input.MouseButtonLeft, 1
			}
			if _, err := chromedp.Call(ctx, input.DispatchMouseEvent, event); err != nil {
				return StopTrying("the click failed").Wrap(err) // part of it may have happened
			}
		}
		return nil
	})
}

// middle scrolls to the element and returns where to click.
func (l *Locator) middle(ctx context.Context) (x, y float64, err error) {
	node, err := l.one(ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, err := chromedp.Call(ctx, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: node}); err != nil {
		return 0, 0, fmt.Errorf("scroll to %s: %w", l, err)
	}
	shape, err := chromedp.Call(ctx, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: node})
	if err != nil {
		return 0, 0, fmt.Errorf("where is %s: %w", l, err)
	}
	if len(shape.Quads) == 0 || len(shape.Quads[0]) != 8 {
		return 0, 0, fmt.Errorf("%s is not visible", l)
	}
	q := shape.Quads[0]
	x, y = (q[0]+q[2]+q[4]+q[6])/4, (q[1]+q[3]+q[5]+q[7])/4
	problem, err := ask[string](ctx, node, `function (x, y) {
		if (this.matches(":disabled") || this.getAttribute("aria-disabled") === "true") return "is disabled";
		const top = document.elementFromPoint(x, y);
		if (top === null) return "is outside of the window";
		return this.contains(top) ? "" : "is covered by " + top.outerHTML.slice(0, 200);
	}`, x, y)
	if err == nil && problem != "" {
		err = fmt.Errorf("%s %s", l, problem)
	}
	return x, y, err
}

// focus moves the focus to the element.
func (l *Locator) focus(ctx context.Context) (cdp.BackendNodeID, error) {
	node, err := l.one(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := chromedp.Call(ctx, dom.Focus, dom.FocusParams{BackendNodeID: node}); err != nil {
		return 0, fmt.Errorf("focus %s: %w", l, err)
	}
	return node, nil
}

// Focus moves the focus to the element.
func (l *Locator) Focus(ctx context.Context) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		_, err := l.focus(ctx)
		return err
	})
}

// Type focuses the element and types a text at the end of its content.
func (l *Locator) Type(ctx context.Context, text string) {
	GinkgoHelper()
	l.Focus(ctx)
	l.page.Type(ctx, text)
}

// Fill replaces what a field contains by a text.
func (l *Locator) Fill(ctx context.Context, text string) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		node, err := l.focus(ctx)
		if err == nil {
			_, err = ask[any](ctx, node, `function () { this.select() }`)
		}
		return err
	})
	if text == "" {
		l.page.Press(ctx, "Backspace")
		return
	}
	l.page.Type(ctx, text)
}

// Choose chooses the option of a select element that has a label.
func (l *Locator) Choose(ctx context.Context, label string) {
	GinkgoHelper()
	l.page.until(ctx, func(ctx context.Context) error {
		node, err := l.one(ctx)
		if err != nil {
			return err
		}
		chosen, err := ask[bool](ctx, node, `function (label) {
			const option = [...this.options].find((o) => o.label === label && !o.disabled);
			if (!option || this.disabled) return false;
			this.value = option.value;
			this.dispatchEvent(new Event("input", { bubbles: true }));
			this.dispatchEvent(new Event("change", { bubbles: true }));
			return true;
		}`, label)
		if err == nil && !chosen {
			err = fmt.Errorf("%s has no option %q that can be chosen", l, label)
		}
		return err
	})
}

// Press focuses the element and presses keys, as Page.Press does.
func (l *Locator) Press(ctx context.Context, keys ...string) {
	GinkgoHelper()
	l.Focus(ctx)
	l.page.Press(ctx, keys...)
}

// Type types a text into the element that has the focus.
func (p *Page) Type(ctx context.Context, text string) {
	GinkgoHelper()
	p.call(ctx, func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
		return err
	})
}

// keyNames are the keys that are no characters.
var keyNames = map[string]string{
	"ArrowDown": kb.ArrowDown, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "ArrowUp": kb.ArrowUp, "Backspace": kb.Backspace, "Delete": kb.Delete,
	"End": kb.End, "Enter": kb.Enter, "Escape": kb.Escape, "Home": kb.Home, "PageDown": kb.PageDown, "PageUp": kb.PageUp, "Space": " ", "Tab": kb.Tab,
}

var modifiers = map[string]kb.Modifier{"Alt": kb.ModifierAlt, "Control": kb.ModifierCtrl, "Meta": kb.ModifierMeta, "Shift": kb.ModifierShift}

// Press presses keys one after the other, such as "Tab", "a" or "Control+Enter".
func (p *Page) Press(ctx context.Context, keys ...string) {
	GinkgoHelper()
	for _, key := range keys {
		p.call(ctx, func(ctx context.Context) error { return press(ctx, key) })
	}
}

func press(ctx context.Context, key string) error {
	words := strings.Split(key, "+")
	var held []kb.Modifier
	for _, word := range words[:len(words)-1] {
		m, ok := modifiers[word]
		if !ok {
			return fmt.Errorf("%s: no modifier is called %q", key, word)
		}
		held = append(held, m)
	}
	text, ok := keyNames[words[len(words)-1]]
	if !ok {
		text = words[len(words)-1]
	}
	if utf8.RuneCountInString(text) != 1 {
		return errors.New("no key is called " + key)
	}
	r, _ := utf8.DecodeRuneInString(text)
	for _, event := range strokes(r, held) {
		if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, *event); err != nil {
			return err
		}
	}
	return nil
}

// strokes returns the events of a key. A character is a part of the event that presses its key. chromedp sends it as an event of its own, so that a page
// could not prevent it, as it can prevent what a person types.
func strokes(r rune, held []kb.Modifier) []*input.DispatchKeyEventParams {
	var down *input.DispatchKeyEventParams
	var events []*input.DispatchKeyEventParams
	for _, event := range kb.Encode(r) {
		for _, m := range held {
			event.Modifiers |= int64(m)
		}
		if event.Type == kb.KeyChar && down != nil {
			if event.Modifiers&^int64(kb.ModifierShift) == 0 {
				down.Type, down.Text, down.UnmodifiedText = kb.KeyDown, event.Text, event.UnmodifiedText
			}
			continue
		}
		if event.Type != kb.KeyUp {
			down = event
		}
		events = append(events, event)
	}
	return events
}

// Focused returns a description of the element that has the focus: its role and its accessible name, such as `button "Send"`.
func (p *Page) Focused(ctx context.Context) string {
	GinkgoHelper()
	var text string
	p.call(ctx, func(ctx context.Context) (err error) {
		text, err = focused(ctx)
		return err
	})
	return text
}
