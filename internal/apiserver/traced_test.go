package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/telemetry"
)

var _ = Describe("Log lines of a request to the runtime API", Label("K8S-06"), func() {
	// logged serves a request that fails in a way that callers are not shown, and returns the keys and values of the line about it.
	logged := func(ctx context.Context, method string, info *apirequest.RequestInfo, lasting bool) (line map[string]any, traceID string) {
		GinkgoHelper()
		ctx = klog.NewContext(ctx, funcr.NewJSON(func(l string) { Expect(json.Unmarshal([]byte(l), &line)).To(Succeed()) }, funcr.Options{}))
		ctx = audit.WithAuditContext(apirequest.WithRequestInfo(ctx, info))
		audit.WithAuditID(ctx, types.UID("request-1"))
		h := withTracing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if sc := trace.SpanContextFromContext(r.Context()); sc.IsValid() {
				traceID = sc.TraceID().String()
			}
			Expect(status.Of(r.Context(), info.Name, errors.New("the disk is on fire"))).To(MatchError(Not(ContainSubstring("on fire"))))
		}), func(*http.Request, *apirequest.RequestInfo) bool { return lasting })
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, method, "/", nil))
		Expect(line).To(HaveKeyWithValue("error", "the disk is on fire"))
		return line, traceID
	}
	thread := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Namespace: "shop", Resource: "threads", Subresource: "messages", Name: "orders"}

	It("name the request, its trace and its Thread", func(ctx SpecContext) {
		telemetry.Install(&telemetry.Provider{Tracer: sdktrace.NewTracerProvider().Tracer(telemetry.Scope)})
		DeferCleanup(telemetry.Install, (*telemetry.Provider)(nil))
		line, traceID := logged(ctx, http.MethodPost, thread, false)
		Expect(traceID).NotTo(BeEmpty())
		Expect(line).To(And(HaveKeyWithValue("request_id", "request-1"), HaveKeyWithValue("trace_id", traceID),
			HaveKeyWithValue("namespace", "shop"), HaveKeyWithValue("name", "orders")))
	})

	It("of a stream name no trace, and others no Thread", func(ctx SpecContext) {
		line, _ := logged(ctx, http.MethodGet, thread, true)
		Expect(line).To(And(HaveKeyWithValue("request_id", "request-1"), HaveKeyWithValue("name", "orders"), Not(HaveKey("trace_id"))))
		line, _ = logged(ctx, http.MethodGet, &apirequest.RequestInfo{IsResourceRequest: true, Verb: "get", Namespace: "shop", Resource: "kvstores", Name: "rates"}, false)
		Expect(line).To(And(HaveKeyWithValue("request_id", "request-1"), HaveKeyWithValue("namespace", "shop"), Not(HaveKey("name"))))
	})
})
