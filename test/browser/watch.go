package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// Kinds of problems.
const (
	Exception = "exception" // an exception or a rejected promise that nothing handled
	Console   = "console"   // what the page reported with console.error or console.assert
	Violation = "violation" // what a Content-Security-Policy or Trusted Types blocked
	Load      = "load"      // an answer with a status of 400 or more, or none
	Dialog    = "dialog"    // alert, confirm or prompt
)

// Problem is something that went wrong in a page.
type Problem struct{ Kind, Text string }

// Request is a request of a page.
type Request struct {
	Method, URL string
	// Error is why it got no answer, such as net::ERR_NAME_NOT_RESOLVED, or csp when a Content-Security-Policy blocked it.
	Error string
}

// watcher keeps what happens in a page. mu guards the fields behind it.
type watcher struct {
	mu       sync.Mutex
	problems []Problem
	allowed  []string
	requests []*Request
	byID     map[network.RequestID]*Request
}

// note records an event of the page. It must not block, because the answers of commands come in after it.
func (w *watcher) note(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		w.problem(Exception, exceptionText(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			w.problem(Console, argumentsText(e.Args))
		}
	case *log.EventEntryAdded:
		switch {
		case e.Entry.Level != log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity: // violations are issues, below
		case e.Entry.Source == log.EntrySourceNetwork:
			w.problem(Load, e.Entry.URL+": "+e.Entry.Text)
		default:
			w.problem(Console, e.Entry.Text)
		}
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil && !d.IsReportOnly {
			w.problem(Violation, strings.TrimSpace(fmt.Sprintf("%s: %s %s%s", d.ViolatedDirective, d.ContentSecurityPolicyViolationType, d.BlockedURL, place(d.SourceCodeLocation))))
		}
	case *page.EventJavascriptDialogOpening:
		w.problem(Dialog, fmt.Sprintf("%s: %s", e.Type, e.Message))
	case *network.EventRequestWillBeSent:
		w.request(e.RequestID, &Request{Method: e.Request.Method, URL: e.Request.URL})
	case *network.EventWebSocketCreated:
		w.request(e.RequestID, &Request{Method: "GET", URL: e.URL})
	case *network.EventLoadingFailed:
		if r := w.byID[e.RequestID]; r != nil {
			r.Error = e.ErrorText
			if e.BlockedReason != "" {
				r.Error = e.BlockedReason.String()
			}
		}
	}
}

func (w *watcher) problem(kind, text string) { w.problems = append(w.problems, Problem{kind, text}) }

// request records a request. Each redirect is one more, with the id of the first.
func (w *watcher) request(id network.RequestID, r *Request) {
	w.requests = append(w.requests, r)
	w.byID[id] = r
}

// unexpected returns the problems that Allow does not name.
func (w *watcher) unexpected() []Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Problem
	for _, p := range w.problems {
		if !slices.ContainsFunc(w.allowed, func(part string) bool { return strings.Contains(p.Kind+": "+p.Text, part) }) {
			found = append(found, p)
		}
	}
	return found
}

// Problems returns what went wrong so far, expected or not.
func (p *Page) Problems() []Problem {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	return slices.Clone(p.watcher.problems)
}

// Allow says that problems may happen whose line "kind: text" contains one of the parts. They do not fail the spec.
func (p *Page) Allow(parts ...string) {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	p.watcher.allowed = append(p.watcher.allowed, parts...)
}

// Requests returns the requests of the page so far, WebSockets included.
func (p *Page) Requests() []Request {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	out := make([]Request, 0, len(p.watcher.requests))
	for _, r := range p.watcher.requests {
		out = append(out, *r)
	}
	return out
}

// Hosts returns the names of the hosts, without ports, that the page sent requests to or tried to, sorted.
func (p *Page) Hosts() []string {
	var hosts []string
	for _, r := range p.Requests() {
		if u, err := url.Parse(r.URL); err == nil && u.Host != "" { // others are data: and blob:
			hosts = append(hosts, u.Hostname())
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func exceptionText(d *runtime.ExceptionDetails) string {
	text := d.Text
	if e := d.Exception; e != nil {
		text += " " + objectText(e)
	}
	return text
}

func argumentsText(args []*runtime.RemoteObject) string {
	parts := make([]string, 0, len(args))
	for _, a := range args {
		parts = append(parts, objectText(a))
	}
	return strings.Join(parts, " ")
}

// objectText returns a value of JavaScript as a person would write it.
func objectText(o *runtime.RemoteObject) string {
	var text string
	switch {
	case o.Description != "":
		return o.Description
	case o.UnserializableValue != "":
		return string(o.UnserializableValue)
	case json.Unmarshal(o.Value, &text) == nil:
		return text
	}
	return string(o.Value)
}

func place(l *audits.SourceCodeLocation) string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf(" at %s:%d:%d", l.URL, l.LineNumber+1, l.ColumnNumber+1)
}
