package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/webhook"
)

// receiving has one WebhookReceiver.
type receiving struct{ to *definitions.Receiver }

func (r receiving) Receiver(context.Context, string, string) (*definitions.Receiver, error) {
	return r.to, nil
}

var _ = Describe("Log lines of a request", Label("K8S-06"), Serial, func() {
	var (
		s     *Server
		lines chan string
		spans *tracetest.InMemoryExporter
	)

	BeforeEach(func() {
		s, lines, spans = serverOf(nil), make(chan string, 10), tracetest.NewInMemoryExporter()
		s.opts.Objects = &counting{} // whose errors are logged
		s.opts.Logger = funcr.NewJSON(func(line string) { lines <- line }, funcr.Options{})
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		telemetry.Install(&telemetry.Provider{Tracer: provider.Tracer(telemetry.Scope)})
		DeferCleanup(telemetry.Install, (*telemetry.Provider)(nil))
	})

	// logged returns the last line. All have the same keys, and none twice.
	logged := func() map[string]any {
		GinkgoHelper()
		Expect(lines).NotTo(BeEmpty())
		var out map[string]any
		for len(lines) > 0 {
			line, before := <-lines, out
			out = map[string]any{}
			Expect(json.Unmarshal([]byte(line), &out)).To(Succeed())
			for _, key := range []string{"request_id", "namespace", "name", "trace_id"} {
				Expect(strings.Count(line, `"`+key+`":`)).To(BeNumerically("<=", 1), line)
				if before != nil {
					Expect([]any{out[key]}).To(Equal([]any{before[key]}), line)
				}
			}
		}
		return out
	}
	trace := func() string { return spans.GetSpans()[0].SpanContext.TraceID().String() }
	post := func(path, body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return r
	}
	// threadOf is the name of the Thread of a signed id.
	threadOf := func(signed string) string {
		id, _, _ := strings.Cut(signed, ";")
		return kube.GatewayThread(&definitions.Gateway{Namespace: "ns", Name: "chat"}, id)
	}

	It("to a gateway name the request, its trace and its Thread", func() {
		got := ask(s, post("/ns/chat/v1/message", `{"content":"hello"}`))
		Expect(got.StatusCode).To(Equal(http.StatusInternalServerError))
		Expect(logged()).To(And(
			HaveKeyWithValue("request_id", got.Header.Get("x-session-id")), HaveKeyWithValue("trace_id", trace()),
			HaveKeyWithValue("namespace", "ns"), HaveKeyWithValue("threadGateway", "chat"), HaveKeyWithValue("name", threadOf(got.Header.Get("x-thread-id")))))
	})

	It("name no trace without telemetry", func() {
		telemetry.Install(nil)
		got := ask(s, post("/ns/chat/v1/message", `{"content":"hello"}`))
		Expect(logged()).To(And(HaveKeyWithValue("request_id", got.Header.Get("x-session-id")), Not(HaveKey("trace_id"))))
	})

	It("that came over a WebSocket name the message, its trace and its Thread", func(ctx SpecContext) {
		s.stopping = make(chan struct{})
		h := httptest.NewServer(http.HandlerFunc(s.serve))
		DeferCleanup(h.Close)
		c, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(h.URL, "http")+"/ns/chat/v1/socket", nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = c.CloseNow() })
		Expect(c.Write(ctx, websocket.MessageText, []byte(`{"content":"hello"}`))).To(Succeed())
		var failed outgoing
		for failed.Event != "error" {
			_, data, err := c.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(json.Unmarshal(data, &failed)).To(Succeed())
		}
		var body errorBody
		Expect(json.Unmarshal(failed.Data, &body)).To(Succeed())
		line := logged()
		Expect(line).To(And(HaveKeyWithValue("request_id", body.Session), HaveKeyWithValue("name", threadOf(resp.Header.Get(ids.Header))), HaveKeyWithValue("trace_id", Not(BeEmpty()))))
		Expect(body.Session).NotTo(Equal(resp.Header.Get(ids.SessionHeader)))
	}, SpecTimeout(time.Minute))

	It("to a WebhookReceiver name the delivery's request, its trace and its Thread", Label("EVT-05"), func() {
		key := []byte("a key of 32 bytes, or about that")
		s.opts.Receivers = receiving{to: &definitions.Receiver{
			Namespace: "ns", Name: "ci", UID: "u", Form: skeinv1.WebhookStandard, Keys: [][]byte{key}, Thread: "missing", MaxBytes: 1000, PerMinute: 10,
		}}
		r := post("/ns/ci/v1/webhook", `{}`)
		webhook.Sign(r.Header, [][]byte{key}, "msg_1", time.Now(), []byte(`{}`))
		got := ask(s, r)
		Expect(got.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(logged()).To(And(
			HaveKeyWithValue("request_id", got.Header.Get("x-session-id")), HaveKeyWithValue("trace_id", trace()),
			HaveKeyWithValue("namespace", "ns"), HaveKeyWithValue("webhookReceiver", "ci"), HaveKeyWithValue("name", "missing"), Not(HaveKey("threadGateway"))))
	})
})
