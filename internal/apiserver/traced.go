package apiserver

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/telemetry"
)

// withTracing starts a span for each request, as a child of the client's span. It passes the id of the request on to the work that follows, and adds the
// request's keys to log lines. It runs after authentication and authorization, so other clients cannot start spans or choose a trace. Streams have no
// span, because they last.
func withTracing(next http.Handler, lasting apirequest.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := telemetry.WithRequestID(r.Context(), audit.GetAuditIDTruncated(r.Context()))
		info, ok := apirequest.RequestInfoFrom(ctx)
		if !telemetry.Enabled() || !ok || !info.IsResourceRequest || r.Method == http.MethodGet && lasting(r, info) {
			next.ServeHTTP(w, r.WithContext(withLogValues(ctx, info)))
			return
		}
		route := info.Resource
		if info.Subresource != "" {
			route += "/" + info.Subresource
		}
		ctx = telemetry.Extract(ctx, r.Header.Get("traceparent"))
		ctx, span := telemetry.Start(ctx, info.Verb+" "+route, trace.SpanKindServer, info.Namespace,
			semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(route),
			attribute.String("skein.namespace", info.Namespace), attribute.String("skein.thread.name", info.Name),
			attribute.String("skein.request.id", telemetry.RequestID(ctx)))
		defer span.End()
		written := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(written), r.WithContext(withLogValues(ctx, info)))
		if written.code == 0 {
			written.code = http.StatusOK
		}
		span.Set(semconv.HTTPResponseStatusCode(written.code))
		if written.code >= http.StatusInternalServerError {
			span.Fail(strconv.Itoa(written.code), "")
		}
	})
}

// withLogValues returns a context whose log lines say which request they are about. Those of runs use the same keys.
func withLogValues(ctx context.Context, info *apirequest.RequestInfo) context.Context {
	log := klog.FromContext(ctx).WithValues(telemetry.OfWork(ctx)...)
	if info != nil {
		thread := ""
		if info.Resource == runtimev1.ThreadsResource {
			thread = info.Name
		}
		log = log.WithValues(telemetry.OfThread(info.Namespace, thread, "")...)
	}
	return klog.NewContext(ctx, log)
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns what this wraps, for flushing and deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
