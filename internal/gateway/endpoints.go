package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/endpoint/headers"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
)

// endpointsPath is below which the ThreadEndpoints of a gateway are.
const endpointsPath = "v1/endpoints"

// endpointMethods are the methods that a ThreadEndpoint can have, and whether they only read. A request that reads has no body, and
// begins no conversation.
var endpointMethods = map[string]bool{
	http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true,
	http.MethodPost: false, http.MethodPut: false, http.MethodPatch: false, http.MethodDelete: false,
}

var (
	errNoEndpoint     = &problem{status: http.StatusNotFound, reason: "NotFound", message: "no endpoint has this path below v1/endpoints: ask the operator of this site for the address"}
	errEndpointPath   = badRequest(`the path below v1/endpoints has empty parts, "." or "..": write it without them`)
	errNotBegun       = &problem{status: http.StatusNotFound, reason: "NotBegun", message: "this conversation has not begun, so there is nothing to read: send a message first, with the same x-thread-id or cookie"}
	errLargeRequest   = &problem{status: http.StatusRequestEntityTooLarge, reason: "TooLarge", message: "the body is too large: send a smaller one"}
	errEndpointFailed = &problem{status: http.StatusInternalServerError, reason: "EndpointFailed", message: "the endpoint failed, and not because of your request: the operator of this site finds the cause in the log under the x-session-id of this answer"}
	errEndpointSlow   = &problem{status: http.StatusGatewayTimeout, reason: "Timeout", message: "what answers here took too long and was ended: try again later"}
)

// isEndpoint reports whether a path is that of ThreadEndpoints.
func isEndpoint(path string) bool {
	rest, ok := strings.CutPrefix(path, endpointsPath)
	return ok && (rest == "" || rest[0] == '/')
}

// segmentsOf returns the path of an endpoint in segments.
func segmentsOf(path string) ([]string, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, endpointsPath), "/")
	if rest == "" {
		return nil, nil
	}
	segments := strings.Split(rest, "/")
	if slices.ContainsFunc(segments, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return nil, errEndpointPath
	}
	return segments, nil
}

// endpoint answers a request with the code of a ThreadEndpoint that the gateway declares, in the client's own conversation (END-01).
func (s *Server) endpoint(q *request, path string) error {
	reads, known := endpointMethods[q.Method]
	segments, err := segmentsOf(path)
	switch {
	case len(q.gateway.Endpoints) == 0:
		return errNoPath
	case err != nil:
		return err
	case !known:
		return methodNotAllowed("a method that the path has: OPTIONS lists them")
	}
	key, err := idempotencyKey(q)
	if err != nil {
		return err
	}
	leave := q.limiter.enter()
	if leave == nil {
		return tooMany("all clients together")
	}
	defer leave()
	req := endpoints.Request{
		Method: q.Method, Path: segments, URL: urlOf(q), Headers: headersOf(q), User: q.user, Key: key, Only: q.gateway.Endpoints, Reads: reads,
	}
	if reads {
		_ = http.NewResponseController(q.answer).SetReadDeadline(time.Time{}) // the answer may take longer than a request
	} else if req.Body, err = readUpTo(q, q.gateway.Limits.MessageBytes, errLargeRequest, nil); err != nil {
		return err
	}
	row, err := s.threadFor(q, reads)
	if err != nil {
		return err
	}
	answer := &endpointAnswer{server: s, request: q, text: s.opts.Secrets.OpenLines(q.gateway.Namespace)}
	err = s.opts.Engine.ServeEndpoint(q.Context(), row.ID, req, answer)
	if answer.started {
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
		}
		answer.end()
		return nil
	}
	return endpointProblem(q, err)
}

// threadFor returns the thread of the client's conversation. A request that writes begins the conversation if there is none. One
// that reads gets errNotBegun.
func (s *Server) threadFor(q *request, reads bool) (row *store.Thread, err error) {
	if !reads {
		_, row, err = s.ensure(q)
		return row, err
	}
	if q.fresh {
		return nil, errNotBegun
	}
	_, row, err = s.open(q)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errNotBegun
	}
	return row, err
}

// headersOf returns the headers that code sees. With the signed id it could be the client elsewhere.
func headersOf(q *request) [][2]string {
	return slices.DeleteFunc(headers.OfRequest(q.Header), func(h [2]string) bool { return strings.EqualFold(h[0], ids.Header) })
}

// endpointProblem returns what the client is told of an endpoint that has not answered.
func endpointProblem(q *request, err error) error {
	var unknown *definition.UnknownError
	var method *definition.MethodError
	var failed *endpoints.Error
	switch {
	case errors.As(err, &unknown):
		return errNoEndpoint
	case errors.As(err, &method):
		allow := strings.Join(method.Allow, ", ")
		q.answer.Header().Set("Allow", allow)
		if q.Method == http.MethodOptions {
			q.answer.WriteHeader(http.StatusNoContent)
			return nil
		}
		return methodNotAllowed(allow)
	case errors.As(err, &failed):
		logr.FromContextOrDiscard(q.Context()).Info("A ThreadEndpoint did not answer a request of the gateway", "threadEndpoint", failed.Endpoint, "cause", failed.Message)
		switch {
		case failed.Timeout:
			return errEndpointSlow
		case failed.Lost:
			return errUnavailable
		}
		return errEndpointFailed
	case errors.Is(err, context.Canceled) && q.Context().Err() != nil:
		return nil // the client has gone
	}
	return err
}

// ownAnswer are headers that the gateway sets itself, and code does not: whose conversation it is, and what keeps the answer out of
// caches and pages.
var ownAnswer = []string{ids.Header, ids.SessionHeader, "Cache-Control", "Content-Security-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy", "Vary"}

// endpointAnswer sends the answer of an endpoint, without secrets.
type endpointAnswer struct {
	server  *Server
	request *request
	started bool
	mute    bool // the answer has no body
	text    *redact.Stream
}

// Head implements endpoints.Answer.
func (a *endpointAnswer) Head(endpoint string, status int, list [][2]string) error {
	h := a.request.answer.Header()
	hide := func(text string) string { return a.server.opts.Secrets.Text(a.request.gateway.Namespace, text) }
	for _, pair := range list {
		name := http.CanonicalHeaderKey(pair[0])
		if headers.InAnswer(name) && !slices.Contains(ownAnswer, name) {
			h.Set(name, headers.Answer(pair[1], hide))
		}
	}
	a.mute = a.request.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if h.Get("Content-Type") == "" && !a.mute {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set(runtimev1.HeaderEndpoint, endpoint)
	a.started = true
	inTime(a.request.answer)
	a.request.answer.WriteHeader(status)
	return nil
}

// Write implements endpoints.Answer.
func (a *endpointAnswer) Write(piece []byte) error {
	if a.mute {
		return nil
	}
	return a.send(a.text.Next(string(piece)))
}

// send sends a piece. A client that does not take it in time loses its connection.
func (a *endpointAnswer) send(ready string) error {
	if ready == "" {
		return nil
	}
	control := http.NewResponseController(a.request.answer)
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(a.request.answer, ready); err != nil {
		return errClient
	}
	if control.Flush() != nil {
		return errClient
	}
	_ = control.SetWriteDeadline(time.Time{}) // code may take its time for the next piece
	return nil
}

// end sends what was held back.
func (a *endpointAnswer) end() {
	_ = a.send(a.text.End()) // an error means that the client has gone
	inTime(a.request.answer)
}
