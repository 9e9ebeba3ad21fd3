// Package wire has what the clients of providers share: how to reach an endpoint, and how long an answer may take. It reads answers
// whose types differ from those of the protocol, and reports failures without the key (AGT-06).
package wire

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
)

const defaultTimeout = 120 * time.Second

// Endpoint is the endpoint of one Model.
type Endpoint struct {
	// URL is the base URL, below which the paths of the protocol are.
	URL string
	// Host is the URL's host without the port.
	Host string
	// Key is the API key without surrounding white space. It is a secret.
	Key string
	// HTTP is the client for every call.
	HTTP *http.Client
	// Headers are sent with every request, in addition to those of the protocol.
	Headers map[string]string

	shown   string // for people, without credentials and query
	timeout time.Duration
	idle    time.Duration // 0 = none
	redact  model.Redactor
}

// NewEndpoint checks what a Model says about its endpoint. fallback is the endpoint of a Model without one. Errors are
// *model.Error of KindConfig. It sends nothing.
func NewEndpoint(c model.Config, fallback string) (*Endpoint, error) {
	endpoint := c.Spec.Endpoint
	if endpoint == "" {
		endpoint = fallback
	}
	base, err := url.Parse(endpoint)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.endpoint is not a URL: write it as %s", c.Name, fallback)
	}
	if base.User != nil || base.RawQuery != "" {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.endpoint must not hold credentials or a query: put the API key into a Secret and name it in spec.credentials", c.Name)
	}
	if c.Spec.Model == "" {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.model is missing: give the model id that the endpoint knows", c.Name)
	}
	e := &Endpoint{
		URL: endpoint, Host: base.Hostname(), Key: strings.TrimSpace(c.APIKey),
		shown: base.String(), timeout: defaultTimeout, redact: model.NewRedactor(c.APIKey, strings.TrimSpace(c.APIKey)),
		HTTP: &http.Client{Transport: roundTripper{transport}, CheckRedirect: sameOrigin},
	}
	if c.Transport != nil {
		e.HTTP.Transport = roundTripper{c.Transport}
	}
	if t := c.Spec.Timeout; t != nil && t.Duration > 0 {
		e.timeout = t.Duration
	}
	if t := c.Spec.IdleTimeout; t != nil && t.Duration > 0 {
		e.idle = t.Duration
	}
	if len(c.Spec.Headers) > 0 {
		e.Headers = map[string]string{}
		for _, h := range c.Spec.Headers {
			e.Headers[http.CanonicalHeaderKey(h.Name)] = h.Value
		}
	}
	return e, nil
}

// Shown returns the endpoint in a form that is safe to show.
func (e *Endpoint) Shown() string { return e.shown }

var errIdle = errors.New("the model sent nothing for too long")

// leastAnswer is what is drawn before a call is made. So a call whose answer finds no memory is most often not made at all.
const leastAnswer = 64 << 10

// Begin limits a call. The returned context ends when the call takes too long, or when nothing arrives for too long.
// Call done at the end, unless there is an error, which says that there is no memory for an answer.
func (e *Endpoint) Begin(ctx context.Context) (call context.Context, done func(), err error) {
	a := membudget.From(ctx)
	if err := a.Draw(ctx, leastAnswer); err != nil {
		return nil, nil, err
	}
	call, end := e.limit(ctx)
	return call, func() {
		end()
		a.Return(leastAnswer)
	}, nil
}

func (e *Endpoint) limit(ctx context.Context) (call context.Context, done func()) {
	call, cancelTime := context.WithTimeout(ctx, e.timeout)
	if e.idle <= 0 {
		return call, cancelTime
	}
	call, cancel := context.WithCancelCause(call)
	w := &watchdog{term: e.idle}
	w.timer = time.AfterFunc(e.idle, func() { cancel(errIdle) })
	return context.WithValue(call, watchdogKey{}, w), func() {
		w.timer.Stop()
		cancel(nil)
		cancelTime()
	}
}

// watchdog ends a call when nothing arrives. It is a value of the call's context, as net/http/httptrace is, because the clients of providers
// pass nothing else of a call on to the transport that reads the answer.
type watchdog struct {
	timer *time.Timer
	term  time.Duration
}

func (w *watchdog) heard() {
	if w != nil {
		w.timer.Reset(w.term)
	}
}

// pause stops the watchdog until something is heard: it is not the model that is waited for.
func (w *watchdog) pause() {
	if w != nil {
		w.timer.Stop()
	}
}

type watchdogKey struct{}

func watchdogOf(ctx context.Context) *watchdog {
	w, _ := ctx.Value(watchdogKey{}).(*watchdog)
	return w
}
