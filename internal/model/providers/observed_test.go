package providers_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/telemetry"
)

// Each call of a Model has a span below that of its caller, with what the provider said of it, and without what was said.
func TestCallsHaveSpans(t *testing.T) {
	var refuse atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refuse.Load() {
			http.Error(w, `{"error":{"message":"canary-refused"}}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"gpt","choices":[{"index":0,"delta":{"content":"canary-answered"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":2}}}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	client, err := providers.NewFactory(nil).Client(model.Config{Namespace: "ns", Name: "m", Version: "1", APIKey: "k", Spec: skeinv1.ModelSpec{
		Provider: skeinv1.ProviderOpenAI, Model: "gpt", Endpoint: server.URL + "/v1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		_, err := client.Stream(ctx, model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: "canary-asked"}}}, func(model.Delta) {})
		return err
	}
	for _, content := range []bool{false, true} {
		exporter := tracetest.NewInMemoryExporter()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer(telemetry.Scope)
		p := &telemetry.Provider{Tracer: tracer}
		if content {
			p.Redact = func(_, text string) string { return strings.ReplaceAll(text, "asked", "[redacted]") }
		}
		telemetry.Install(p)
		defer telemetry.Install(nil)
		if err := ask(context.Background()); err != nil || len(exporter.GetSpans()) != 0 {
			t.Errorf("a call outside of any trace: %v, %d spans", err, len(exporter.GetSpans()))
		}
		ctx, outer := tracer.Start(context.Background(), "invoke_agent a")
		if err := ask(ctx); err != nil {
			t.Fatal(err)
		}
		refuse.Store(true)
		if err := ask(ctx); err == nil {
			t.Fatal("the refusal is no error")
		}
		refuse.Store(false)
		spans := exporter.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("there are %d spans", len(spans))
		}
		var all strings.Builder
		has := map[string]string{}
		for i, s := range spans {
			if s.Name != "chat gpt" || s.Parent.SpanID() != outer.SpanContext().SpanID() {
				t.Errorf("%s is below %v", s.Name, s.Parent)
			}
			all.WriteString(s.Status.Description)
			for _, a := range s.Attributes {
				all.WriteString(a.Value.String())
				if i == 0 {
					has[string(a.Key)] = a.Value.String()
				}
			}
		}
		for key, want := range map[string]string{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt", "gen_ai.usage.input_tokens": "7",
			"gen_ai.usage.output_tokens": "5", "gen_ai.usage.cache_read.input_tokens": "2", "gen_ai.response.finish_reasons": `["stop"]`, "skein.model.name": "m",
		} {
			if has[key] != want {
				t.Errorf("%s is %q, not %q", key, has[key], want)
			}
		}
		said := all.String()
		if got := strings.Contains(said, "canary"); got != content {
			t.Errorf("with content %t, the spans have it: %t", content, got)
		}
		if content && (strings.Contains(said, "canary-asked") || !strings.Contains(said, "canary-[redacted]")) {
			t.Errorf("the content is not redacted: %s", said)
		}
	}
}

// A client that is observed still says how much of the window a request fills, on which compaction depends (MSG-12).
func TestObservedClientsKnowTheirWindow(t *testing.T) {
	client, err := providers.NewFactory(nil).Client(model.Config{Namespace: "ns", Name: "m", Version: "1", APIKey: "k", Spec: skeinv1.ModelSpec{
		Provider: skeinv1.ProviderOpenAI, Model: "gpt", Endpoint: "http://127.0.0.1:1/v1", Capabilities: &skeinv1.ModelCapabilities{ContextWindow: 700, MaxOutputTokens: 100},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tokens, room := model.FillOf(client, model.Request{Messages: []model.Message{{Role: model.RoleUser, Content: strings.Repeat("x ", 100)}}})
	if tokens <= 0 || room <= 0 {
		t.Errorf("a request fills %d of %d tokens", tokens, room)
	}
}
