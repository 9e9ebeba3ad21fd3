package flow

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// AnnotationRefused is the annotation of audit events whose request was refused with 429 before it was authorized. It says why.
const AnnotationRefused = "skein.dev/flow-control"

// WrapChain returns the chain of filters that build makes around handler. An authenticator and an authorizer cannot choose how the generic
// API server answers their errors: it takes them for wrong credentials (401), missing rights (403) and faults of its own (500). So what a filter answers
// after RecordRefusal is replaced with 429. It does so only until the request has passed all filters: handlers answer for themselves.
// Requests with headers that are too large do not reach the filters.
func (c *Control) WrapChain(handler http.Handler, build func(http.Handler) http.Handler) http.Handler {
	chain := build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := filteringOf(r.Context()); f != nil {
			f.passed.Store(true)
		}
		handler.ServeHTTP(w, r)
	}))
	return c.boundHeader(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := &filtering{}
		w = responsewriter.WrapForHTTP1Or2(&filteredWriter{ResponseWriter: w, request: r, state: f, refuse: c.refuse})
		chain.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), filteringKey{}, f)))
	}))
}

// filtering is what happened to a request in the filters. The filters may run in another goroutine than the one that answers.
//
// It is a value of the request's context, as the user and the audit event are: an authenticator and an authorizer get nothing else of the request
// that the writer of its answer also has. WrapChain alone sets it, and RecordRefusal alone changes it before the filters are passed.
type filtering struct {
	refused atomic.Pointer[apierrors.StatusError]
	passed  atomic.Bool
}

type filteringKey struct{}

func filteringOf(ctx context.Context) *filtering {
	f, _ := ctx.Value(filteringKey{}).(*filtering)
	return f
}

// RecordRefusal makes the filters of the request answer with err, if it is a 429 of this package. Authenticators and authorizers of WrapChain's filters call it
// with what Acquire returned.
func RecordRefusal(ctx context.Context, err error) {
	var refusal *apierrors.StatusError
	if !errors.As(err, &refusal) {
		return
	}
	why, refused := apierrors.StatusCause(refusal, runtimev1.CauseFlowControl)
	if f := filteringOf(ctx); refused && f != nil && !f.passed.Load() && f.refused.CompareAndSwap(nil, refusal) {
		audit.AddAuditAnnotation(ctx, AnnotationRefused, why.Message)
	}
}

// filteredWriter replaces what a filter answers to a request that was refused.
type filteredWriter struct {
	http.ResponseWriter
	request  *http.Request
	state    *filtering
	refuse   func(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError)
	replaced bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *filteredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *filteredWriter) WriteHeader(code int) {
	err := w.state.refused.Load()
	switch {
	case w.replaced:
	case err == nil || code < http.StatusBadRequest || w.state.passed.Load():
		w.ResponseWriter.WriteHeader(code)
	default:
		w.replaced = true
		w.Header().Del("Content-Length") // of the answer that is replaced
		w.refuse(w.ResponseWriter, w.request, err)
	}
}

// Write implements http.ResponseWriter.
func (w *filteredWriter) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
