package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/audited"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/telemetry"
)

// errShare says that the namespace has as many requests under way as it may. It names no namespace.
var errShare = &problem{
	status: http.StatusTooManyRequests, reason: "TooMany", code: "rate_limit_exceeded", message: "too many requests are under way here: wait a little", retry: 1,
}

// callerName names a gateway, or a receiver, as the audit and the flow control name users.
func callerName(kind, namespace, name string) string {
	return "skein:" + kind + ":" + namespace + ":" + name
}

// enter counts a request with those of its namespace that are under way. done is never nil.
func (s *Server) enter(who, namespace string, lasting bool) (done func(), err error) {
	if s.opts.Share == nil {
		return func() {}, nil
	}
	if done, err = s.opts.Share.Enter(who, namespace, lasting); err != nil {
		return func() {}, errShare
	}
	return done, nil
}

// audit returns an answer that knows its status, and what records it once it is given. The entry of the answer is filled in
// meanwhile.
func (s *Server) audit(w http.ResponseWriter, r *http.Request, session string) (a *audible, record func()) {
	a = &audible{ResponseWriter: w, log: s.opts.Logger, entry: audited.Entry{
		ID: session, Who: "skein:gateway", Received: time.Now(), Verb: verbOf(r.Method), Path: r.URL.Path, From: s.address(r).String(), UserAgent: r.UserAgent(),
	}}
	return a, func() {
		failed := recover()
		switch {
		case failed != nil:
			a.entry.Code = http.StatusInternalServerError
		case a.entry.Code == 0:
			a.entry.Code = http.StatusOK
		}
		s.opts.Audit.Record(&a.entry)
		a.endSpan()
		if failed != nil {
			panic(failed) // the HTTP server logs it and closes the connection
		}
	}
}

// audible is an answer that knows its status, with the entry and the span of its request.
type audible struct {
	http.ResponseWriter
	entry audited.Entry
	span  *telemetry.Span // nil: none
	// trace is the id of the request's trace, or "".
	trace string
	log   logr.Logger
	// kind and name are what serves the request, in the words of log lines; "" when nothing may.
	kind, name string
}

// withLogValues returns a context whose log lines say which request they are about, as far as is known by now. Those of runs use the same
// keys.
func (a *audible) withLogValues(ctx context.Context) context.Context {
	log := a.log.WithValues(telemetry.OfThread(a.entry.Namespace, a.entry.Thread, "")...).WithValues(telemetry.OfRequest(a.trace, a.entry.ID)...)
	return logr.NewContext(ctx, log.WithValues(a.kind, a.name))
}

// withLog returns ctx with a logger whose lines name the request that w answers, or ctx itself when w is not an *audible.
func withLog(ctx context.Context, w http.ResponseWriter) context.Context {
	if a, ok := w.(*audible); ok {
		return a.withLogValues(ctx)
	}
	return ctx
}

// kinds are the words of log lines for what serves requests.
var kinds = map[string]string{"gateway": "threadGateway", "webhookreceiver": "webhookReceiver"}

// WriteHeader implements http.ResponseWriter.
func (a *audible) WriteHeader(code int) {
	if a.entry.Code == 0 {
		a.entry.Code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap is what http.ResponseController looks for.
func (a *audible) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// verbOf returns the verb of Kubernetes for a method.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

// subresources are what requests are about, in the words of the runtime API. Others are about the thread as a whole.
var subresources = map[string]string{"v1/message": "queue", "v1/chat/completions": "queue", webhookPath: "queue", socketPath: "queue", "v1/messages": "messages"}

// setCaller names whose request it is.
func (a *audible) setCaller(kind, namespace, name, path string) {
	a.entry.Who, a.entry.Namespace, a.entry.Subresource = callerName(kind, namespace, name), namespace, subresources[path]
	if isEndpoint(path) {
		a.entry.Subresource = string(runtimev1.SubresourceEndpoints)
	}
	a.kind, a.name = kinds[kind], name
}

// nameThread names the conversation that a request is about, and the user.
func (q *request) nameThread() {
	if a, ok := q.answer.(*audible); ok && q.id != "" {
		a.entry.Thread, a.entry.User = kube.GatewayThread(q.gateway, q.id), q.user
		q.Request = q.WithContext(a.withLogValues(q.Context()))
	}
}
