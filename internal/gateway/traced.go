package gateway

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/telemetry"
)

// beginTrace begins the trace of a request that is taken: one of a gateway that no limit and no key has refused, or a delivery whose
// signature fits. So strangers cannot make spans at will, and a traceparent header of theirs does not count. What the request
// causes knows it by its session, with traces or without.
func (a *audible) beginTrace(ctx context.Context, kind, method, path string) context.Context {
	ctx = telemetry.WithRequestID(ctx, a.entry.ID)
	ctx, a.span = telemetry.Start(ctx, kind+" "+path, trace.SpanKindServer, a.entry.Namespace,
		semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path),
		attribute.String("skein.namespace", a.entry.Namespace), attribute.String("skein.request.id", a.entry.ID))
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		a.trace = sc.TraceID().String()
	}
	return a.withLogValues(ctx)
}

// endSpan ends the trace of a request that is answered.
func (a *audible) endSpan() {
	a.span.Set(semconv.HTTPResponseStatusCode(int(a.entry.Code)), attribute.String("skein.thread.name", a.entry.Thread))
	if a.entry.Code >= http.StatusInternalServerError {
		a.span.Fail(strconv.Itoa(int(a.entry.Code)), "")
	}
	a.span.End()
}

// beginTrace is that of audible, where there is one.
func beginTrace(w http.ResponseWriter, r *http.Request, kind, path string) *http.Request {
	if a, ok := w.(*audible); ok {
		return r.WithContext(a.beginTrace(r.Context(), kind, r.Method, path))
	}
	return r
}
