// Package httptool makes HTTP requests on behalf of models (TOL-02): Tool objects with spec.http.
package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// DefaultTimeout is the timeout of a call when the Tool sets none.
const DefaultTimeout = time.Minute

// Spec is a Tool object with spec.http.
type Spec struct {
	Name        string // name that the model calls
	Description string
	Parameters  json.RawMessage // JSON Schema; any object when empty
	Timeout     time.Duration   // of one call; DefaultTimeout when 0
	Request     *Request
}

type httpTool struct {
	spec    Spec
	host    *tool.Host
	network *outbound.Scope
}

// New returns the tool of a Tool object.
func New(s Spec, h *tool.Host, n *outbound.Network) tool.Tool {
	if s.Timeout <= 0 {
		s.Timeout = DefaultTimeout
	}
	return &httpTool{spec: s, host: h, network: n.For(h.Thread.Namespace)}
}

// Definition implements tool.Tool.
func (t *httpTool) Definition() tool.Definition {
	return tool.Definition{Name: t.spec.Name, Description: t.spec.Description, Parameters: t.spec.Parameters}
}

// Call implements tool.Tool.
func (t *httpTool) Call(ctx context.Context, call tool.Call) tool.Result {
	bounded, cancel := context.WithTimeout(ctx, t.spec.Timeout)
	defer cancel()
	out, err := t.spec.Request.fill(t.values(bounded, call.Arguments), call.Arguments)
	if err != nil {
		return tool.Failure(err.Error())
	}
	key := tool.IdempotencyKey(t.host.Thread.ID, call.ID)
	a, err := t.exchange(bounded, out, key)
	switch {
	case errors.Is(bounded.Err(), context.DeadlineExceeded) && ctx.Err() == nil && err != nil:
		return failed(fmt.Sprintf("the host %s did not answer within %s: it may have done what it was asked to; try again later, or raise spec.timeout of the tool", out.url.Hostname(), t.spec.Timeout), tool.ServiceFailure{})
	case err != nil:
		if unanswered := (*unansweredError)(nil); errors.As(err, &unanswered) || ctx.Err() != nil { // the caller may have a time limit of its own
			return failed(err.Error(), tool.ServiceFailure{})
		}
		return tool.Failure(err.Error())
	case a.code >= http.StatusMultipleChoices:
		return failed(a.failure(), tool.ServiceFailure{Status: a.code, RetryAfter: retryAfter(a.header, ownclock.Now())})
	}
	return t.result(ctx, call.ID, a)
}

// unansweredError means that the request was made, or tried, and no whole answer came.
type unansweredError struct{ text string }

func (e *unansweredError) Error() string { return e.text }

func failed(text string, f tool.ServiceFailure) tool.Result {
	res := tool.Failure(text)
	res.Service = &f
	return res
}

// retryAfter returns the wait that a response asks for, in seconds or until a date; 0 if it asks for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(time.Duration(n)*time.Second, 0)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// result converts a response to the result that the model reads.
func (t *httpTool) result(ctx context.Context, callID string, a *answer) tool.Result {
	if r := t.spec.Request.result; r != nil {
		text, err := r.read(a)
		if err != nil {
			return tool.Failure(err.Error())
		}
		return tool.Success(text)
	}
	switch {
	case len(a.body) == 0:
		return tool.Success(a.status())
	case a.textual():
		return tool.Success(string(a.body))
	}
	file, err := tool.Attach(ctx, t.host.State, callID, 1, a.header.Get("Content-Type"), a.body)
	if err != nil {
		return tool.Failure("the answer is a file that cannot be stored: " + err.Error())
	}
	res := tool.Success(fmt.Sprintf("the answer is a file of type %s with %d bytes: %s", file.MimeType, file.Size, file.Path))
	res.Attachments = append(res.Attachments, file)
	return res
}

// values returns the arguments of a call and the variables of the thread.
func (t *httpTool) values(ctx context.Context, arguments json.RawMessage) values {
	var args any
	_ = decode(arguments, &args) // the schema has checked it
	return func(p *part) (any, bool, error) {
		if p.source == sourceArguments {
			v, ok := lookup(args, p.path)
			return v, ok, nil
		}
		if t.host.State == nil {
			return nil, false, fmt.Errorf("the tool needs the variable %s, which only a conversation has: this call has none", p.path[0])
		}
		v, err := t.host.State.EnvValue(ctx, p.path[0])
		if errors.Is(err, thread.ErrEnvUnknown) {
			return nil, false, fmt.Errorf("the tool needs the variable %s, which has no value in this conversation", p.path[0])
		}
		if err != nil {
			return nil, false, err
		}
		return v.Value, true, nil
	}
}

// exchange makes a request, follows redirects and reads the response. Its errors are for the model.
func (t *httpTool) exchange(ctx context.Context, out *outgoing, key string) (*answer, error) {
	own := out.url
	for hops := 0; ; hops++ {
		resp, err := t.ask(ctx, out, key, outbound.SameOrigin(out.url, own))
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if refused := (*outbound.RefusedError)(nil); errors.As(err, &refused) {
				return nil, errors.New(refused.Message)
			}
			return nil, &unansweredError{outbound.Explain(err, out.url.Hostname())}
		}
		location := resp.Header.Get("Location")
		if location == "" || !slices.Contains(redirects, resp.StatusCode) {
			return t.read(ctx, resp)
		}
		_ = resp.Body.Close()
		if hops == t.spec.Request.redirect {
			return nil, fmt.Errorf("the host %s redirects more than the %d times that are followed", own.Hostname(), hops)
		}
		if out, err = t.redirected(out, own, resp.StatusCode, location); err != nil {
			return nil, err
		}
	}
}

var redirects = []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}

// redirected returns the request that a redirect asks for, if the redirect may be followed.
func (t *httpTool) redirected(out *outgoing, own *url.URL, code int, location string) (*outgoing, error) {
	to, err := out.url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("the host %s redirects to something that is not a URL", out.url.Hostname())
	}
	to.User, to.Fragment = nil, ""
	switch {
	case to.Scheme != "https" && to.Scheme != out.url.Scheme:
		return nil, fmt.Errorf("the host %s redirects to a URL that is not https, which tools do not follow", out.url.Hostname())
	case to.Hostname() != own.Hostname() && !outbound.Match(t.spec.Request.allowed, to):
		return nil, fmt.Errorf("the host %s redirects to the host %s: tools follow this only when spec.http.allowedHosts names the host", out.url.Hostname(), to.Hostname())
	}
	next := *out
	next.url = to
	keeps := code == http.StatusTemporaryRedirect || code == http.StatusPermanentRedirect || out.method == http.MethodGet || out.method == http.MethodHead ||
		code != http.StatusSeeOther && out.method != http.MethodPost
	if !keeps {
		next.method, next.body, next.bodyType = http.MethodGet, nil, ""
	}
	return &next, nil
}

// ask makes one request. trusted says that the request goes to the origin in the spec, so credentials may be sent with
// it.
func (t *httpTool) ask(ctx context.Context, out *outgoing, key string, trusted bool) (*http.Response, error) {
	var body io.Reader
	if out.bodyType != "" {
		body = bytes.NewReader(out.body)
	}
	req, err := http.NewRequestWithContext(ctx, out.method, out.url.String(), body)
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	req.Header.Set("User-Agent", "skein")
	req.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.8")
	if out.bodyType != "" {
		req.Header.Set("Content-Type", out.bodyType)
	}
	for _, h := range out.headers {
		if trusted || !h.guarded {
			req.Header.Set(h.name, h.value)
		}
	}
	// The name is in lower case, which is the same header on the wire. With the canonical name, the transport would
	// consider itself free to repeat a request that has arrived, and not every server heeds the key.
	req.Header[strings.ToLower(HeaderIdempotencyKey)] = []string{key}
	if trusted && t.spec.Request.signing != nil {
		sign(t.spec.Request.signing, req, out.body, ownclock.Now())
	}
	return t.network.RoundTrip(req)
}

// bytesBeside returns about how many bytes of memory an answer takes besides its body.
func (r *Request) bytesBeside(body []byte) int64 {
	if r.result != nil {
		return membudget.JSONCost(body)
	}
	return int64(len(body))
}

// read reads a response up to the limit. What it takes is drawn from the account of the call.
func (t *httpTool) read(ctx context.Context, resp *http.Response) (*answer, error) {
	defer func() { _ = resp.Body.Close() }()
	a := &answer{code: resp.StatusCode, header: resp.Header, redact: t.host.Redacted}
	limit := t.spec.Request.maxBytes
	if a.code >= http.StatusMultipleChoices {
		limit = min(limit, 2*maxErrorShown)
	}
	var err error
	memory := membudget.From(ctx)
	a.body, err = membudget.ReadAll(ctx, memory, io.LimitReader(resp.Body, limit+1))
	if err == nil { // it becomes a text once more, or a value
		err = memory.Draw(ctx, t.spec.Request.bytesBeside(a.body))
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case membudget.Refused(err):
		return nil, fmt.Errorf("the host %s was asked, and there is no memory for its answer: %w", resp.Request.URL.Hostname(), err)
	case err != nil:
		return nil, &unansweredError{"the answer broke off: " + outbound.Explain(err, resp.Request.URL.Hostname())}
	case int64(len(a.body)) > limit && a.code < http.StatusMultipleChoices:
		return nil, fmt.Errorf("the answer has more than the %d bytes that the tool may take: ask for less, or raise spec.http.maxResponseBytes of the tool", limit)
	}
	return a, nil
}
