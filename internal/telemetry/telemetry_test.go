package telemetry_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/telemetry/otlp"
)

const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// install collects spans until the test ends.
func install(t *testing.T, redact func(namespace, text string) string, options ...sdktrace.TracerProviderOption) *tracetest.InMemoryExporter {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter), sdktrace.WithIDGenerator(otlp.IDs))...)
	telemetry.Install(&telemetry.Provider{Tracer: provider.Tracer(telemetry.Scope), Redact: redact})
	t.Cleanup(func() { telemetry.Install(nil) })
	return exporter
}

func TestOriginsAreAddedToObjectsOnly(t *testing.T) {
	o := telemetry.Origin{Traceparent: caller, RequestID: "r"}
	for _, payload := range []string{`{"id":"m","content":"hi"}`, `{}`, " {\"a\":{}} \n"} {
		out := o.AddTo(json.RawMessage(payload))
		if got := telemetry.ReadOrigin(out); got != o {
			t.Errorf("%s: read %+v of %s", payload, got, out)
		}
		var before, after map[string]any
		if json.Unmarshal([]byte(payload), &before) != nil || json.Unmarshal(out, &after) != nil || len(after) != len(before)+1 {
			t.Errorf("%s became %s", payload, out)
		}
		if again := (telemetry.Origin{RequestID: "other"}).AddTo(out); string(again) != string(out) {
			t.Errorf("a second origin replaced the first: %s", again)
		}
	}
	for _, payload := range []string{"", "null", "[1]", `"{}"`, "{"} {
		if out := o.AddTo(json.RawMessage(payload)); string(out) != payload {
			t.Errorf("%s became %s", payload, out)
		}
	}
	if out := (telemetry.Origin{}).AddTo(json.RawMessage(`{}`)); string(out) != `{}` {
		t.Errorf("no origin made %s", out)
	}
	if got := telemetry.ReadOrigin(json.RawMessage(`{"content":"say \"telemetry\""}`)); got != (telemetry.Origin{}) {
		t.Errorf("a text gave %+v", got)
	}
}

func TestWrongHeadersBeginTracesOfTheirOwn(t *testing.T) {
	exporter := install(t, nil)
	for _, header := range []string{"", "nonsense", "00-0-0-01", strings.Repeat("0", 10_000), "00-00000000000000000000000000000000-0000000000000000-01"} {
		_, span := telemetry.Start(telemetry.Extract(context.Background(), header), "request", trace.SpanKindServer, "ns")
		span.End()
	}
	for _, s := range exporter.GetSpans() {
		if s.Parent.IsValid() || !s.SpanContext.IsValid() {
			t.Errorf("the span has the parent %v", s.Parent)
		}
	}
}

// The ids that a run was given when it began are those of the span that is made when it ends, also by another process.
func TestRunsHaveOneSpanWhereverTheyEnd(t *testing.T) {
	for _, origin := range []telemetry.Origin{{Traceparent: caller, RequestID: "r"}, {}} {
		exporter := install(t, nil)
		began := telemetry.BeginRun(origin)
		if len(exporter.GetSpans()) != 0 {
			t.Fatal("a run that began has a span already")
		}
		data, err := json.Marshal(began)
		if err != nil {
			t.Fatal(err)
		}
		exporter = install(t, nil) // the next process
		var run telemetry.Run
		if err := json.Unmarshal(data, &run); err != nil {
			t.Fatal(err)
		}
		ctx, child := telemetry.StartWithin(run.With(context.Background()), "chat m", trace.SpanKindClient, "ns")
		if telemetry.RequestID(ctx) != origin.RequestID {
			t.Errorf("the request is %q", telemetry.RequestID(ctx))
		}
		child.End()
		from := time.Now().Add(-time.Hour)
		run.End("invoke_agent a", "ns", from, from.Add(time.Minute), "ModelFailed", "what was said")
		spans := exporter.GetSpans()
		if len(spans) != 2 {
			t.Fatalf("there are %d spans", len(spans))
		}
		inner, outer := spans[0], spans[1]
		if inner.Parent.SpanID() != outer.SpanContext.SpanID() || inner.SpanContext.TraceID() != outer.SpanContext.TraceID() || outer.SpanContext.TraceID().String() != run.TraceID() {
			t.Errorf("%v is not below %v", inner.Parent, outer.SpanContext)
		}
		if outer.EndTime.Sub(outer.StartTime) != time.Minute || outer.Status.Description != "" {
			t.Errorf("the span lasts %s and says %q", outer.EndTime.Sub(outer.StartTime), outer.Status.Description)
		}
		if got := outer.Parent.IsValid(); got != (origin.Traceparent != "") {
			t.Errorf("it has a parent: %t", got)
		}
	}
}

func TestWhatIsNotSampledHasNoSpans(t *testing.T) {
	exporter := install(t, nil, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	run := telemetry.BeginRun(telemetry.Origin{})
	_, span := telemetry.StartWithin(run.With(context.Background()), "chat m", trace.SpanKindClient, "ns")
	span.End()
	run.End("invoke_agent a", "ns", time.Now(), time.Now(), "", "")
	if n := len(exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans were exported", n)
	}
}

func TestContentIsRedactedAndBounded(t *testing.T) {
	exporter := install(t, func(namespace, text string) string {
		return strings.ReplaceAll(text, "secret-of-"+namespace, "[redacted]")
	})
	_, span := telemetry.Start(context.Background(), "execute_tool t", trace.SpanKindInternal, "ns")
	span.SetContent("arguments", "secret-of-ns "+strings.Repeat("ä", 1<<20))
	span.Fail("tool_error", "secret-of-ns failed")
	span.End()
	s := exporter.GetSpans()[0]
	if text := s.Attributes[0].Value.AsString(); !strings.HasPrefix(text, "[redacted] ä") || len(text) > 65<<10 || strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("the content has %d bytes: %.40s", len(text), text)
	}
	if s.Status.Description != "[redacted] failed" {
		t.Errorf("it failed with %q", s.Status.Description)
	}
	install(t, nil)
	_, span = telemetry.Start(context.Background(), "execute_tool t", trace.SpanKindInternal, "ns")
	if span.HasContent() {
		t.Error("content is on without a redactor")
	}
}

// applied keeps the operations that reach it.
type applied struct {
	store.Store
	ops []store.Op
}

func (a *applied) Apply(_ context.Context, _ string, _ *store.Fence, ops ...store.Op) error {
	a.ops = ops
	return nil
}

func TestInboxItemsCarryWhereTheyComeFrom(t *testing.T) {
	install(t, nil)
	kept := &applied{}
	ctx := telemetry.Origin{Traceparent: caller, RequestID: "r"}.With(context.Background())
	item := store.InboxItem{Kind: store.InboxMessage, Payload: json.RawMessage(`{"id":"m"}`)}
	if err := telemetry.NewStore(kept).Apply(ctx, "t", nil, &store.Enqueue{Item: item}, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}}); err != nil {
		t.Fatal(err)
	}
	if got := telemetry.ReadOrigin(kept.ops[0].(*store.Enqueue).Item.Payload); got != (telemetry.Origin{Traceparent: caller, RequestID: "r"}) {
		t.Errorf("the item comes from %+v", got)
	}
	var m store.Message
	if err := json.Unmarshal(kept.ops[0].(*store.Enqueue).Item.Payload, &m); err != nil || m.ID != "m" {
		t.Errorf("the message is %+v: %v", m, err)
	}
	own := telemetry.Origin{RequestID: "of the message"}
	if err := telemetry.NewStore(kept).Apply(ctx, "t", nil, &store.Enqueue{Item: item, Origin: own.Encode()}); err != nil {
		t.Fatal(err)
	}
	if got := telemetry.ReadOrigin(kept.ops[0].(*store.Enqueue).Item.Payload); got != own {
		t.Errorf("an item with an origin of its own comes from %+v", got)
	}
	if err := telemetry.NewStore(kept).Apply(ctx, "t", nil, &store.Enqueue{}, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}}); err != nil {
		t.Fatal(err)
	}
	if p := kept.ops[1].(*store.Enqueue).Item.Payload; len(p) != 0 {
		t.Errorf("an item without a payload got %s", p)
	}
}

func BenchmarkNoTraces(b *testing.B) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, span := telemetry.StartWithin(ctx, "chat m", trace.SpanKindClient, "ns")
		span.SetContent("a", "b")
		span.End()
	}
}
