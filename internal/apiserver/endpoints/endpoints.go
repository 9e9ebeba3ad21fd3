// Package endpoints answers requests with the code of ThreadEndpoints.
package endpoints

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/endpoint/headers"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
)

// Engine is the part of the engine that calls the code of endpoints.
type Engine interface {
	ServeEndpoint(ctx context.Context, threadID string, req endpoints.Request, to endpoints.Answer) error
}

// Handler serves the endpoints of a thread.
type Handler struct {
	Engine Engine
	// TransferTimeout bounds one piece of a request or an answer.
	TransferTimeout time.Duration
}

// readMethods are the methods that a terminated thread answers too (THR-05). Such requests have no body.
var readMethods = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true}

var errBodyCutOff = apierrors.NewBadRequest("the body was cut off or came too slowly, so the endpoint was not called: send it again")

// Serve answers any method of endpoints/{path} with the code of the ThreadEndpoint that has the path
// (END-01). A request lasts as long as its code, at most the endpoint's timeout. A client that disconnects ends the
// code.
func (h *Handler) Serve(c *call.Call) error {
	for _, part := range c.Path {
		if part == "" || part == "." || part == ".." {
			return apierrors.NewBadRequest(`the path has empty parts, "." or "..": write it without them`)
		}
	}
	ctx := c.Context()
	req := endpoints.Request{
		Method: c.Request.Method, Path: c.Path, URL: endpointURL(c.Request), Headers: headers.OfRequest(c.Request.Header),
		Key: c.Request.Header.Get(runtimev1.HeaderIdempotencyKey), Reads: readMethods[c.Request.Method],
	}
	if user, ok := apirequest.UserFrom(ctx); ok {
		req.User = user.GetName()
	}
	if !req.Reads {
		in := c.PatientBody(h.TransferTimeout)
		body, err := membudget.ReadAll(ctx, membudget.From(ctx), http.MaxBytesReader(c.Response, io.NopCloser(in), endpoints.MaxRequest))
		var tooLarge *http.MaxBytesError
		if in.Err != nil && !errors.As(err, &tooLarge) {
			return errBodyCutOff
		}
		if err != nil {
			return err
		}
		req.Body = body
	}
	answer := &endpointAnswer{call: c, out: c.PatientWriter(h.TransferTimeout), text: c.Secrets.OpenLines(c.Namespace)}
	err := h.Engine.ServeEndpoint(ctx, c.Row.ID, req, answer)
	if answer.started {
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
		}
		return answer.end()
	}
	var method *definition.MethodError
	if errors.As(err, &method) {
		c.Response.Header().Set("Allow", strings.Join(method.Allow, ", "))
		if c.Request.Method == http.MethodOptions {
			c.Response.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	return err
}

// endpointURL returns the request's URL as code sees it: https, the Host header, and the path and query as they arrived.
func endpointURL(r *http.Request) string {
	u := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	return u.String()
}

// endpointAnswer sends the answer of an endpoint, with secrets removed (ENV-03).
type endpointAnswer struct {
	call    *call.Call
	out     *call.PatientWriter
	started bool
	mute    bool // the answer has no body
	text    *redact.Stream
}

// Head implements endpoints.Answer.
func (a *endpointAnswer) Head(endpoint string, status int, list [][2]string) error {
	c := a.call
	h := c.Response.Header()
	hide := func(text string) string { return c.Secrets.Text(c.Namespace, text) }
	for _, pair := range list {
		if headers.InAnswer(pair[0]) {
			h.Set(pair[0], headers.Answer(pair[1], hide))
		}
	}
	a.mute = c.Request.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if h.Get("Content-Type") == "" && !a.mute {
		h.Set("Content-Type", "application/octet-stream")
	}
	headers.Guard(h)
	h.Set(runtimev1.HeaderEndpoint, endpoint)
	a.started = true
	a.out.WriteHeader(status)
	return nil
}

// Write implements endpoints.Answer.
func (a *endpointAnswer) Write(piece []byte) error {
	if a.mute {
		return nil
	}
	ready := a.text.Next(string(piece))
	if ready == "" {
		return nil
	}
	if _, err := io.WriteString(a.out, ready); err != nil {
		return errors.New("the client has gone")
	}
	_ = a.out.FlushError()
	return nil
}

// end sends the end of the text, which Write held back because it could have been the beginning of a secret.
func (a *endpointAnswer) end() error {
	if rest := a.text.End(); rest != "" {
		_, _ = io.WriteString(a.out, rest) // an error means that the client has gone
	}
	return nil
}

// OptionsAsGet makes OPTIONS of an endpoint count as a read for authorization, because it only asks what is allowed.
type OptionsAsGet struct {
	apirequest.RequestInfoResolver
}

// NewRequestInfo implements apirequest.RequestInfoResolver.
func (o OptionsAsGet) NewRequestInfo(r *http.Request) (*apirequest.RequestInfo, error) {
	info, err := o.RequestInfoResolver.NewRequestInfo(r)
	if err == nil && r.Method == http.MethodOptions && info.APIGroup == runtimev1.GroupVersion.Group && info.Resource == runtimev1.ThreadsResource &&
		info.Subresource == string(runtimev1.SubresourceEndpoints) {
		info.Verb = "get"
	}
	return info, err
}
