package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Run is the span of a run, as the run's state keeps it. A run can wait for days and move between processes, but a span is
// made in one. So the ids of the span are chosen when the run begins, everything in the run goes below them, and the process in
// which the run ends makes the span.
type Run struct {
	// Traceparent is the span of the run; "" when the run is not traced.
	Traceparent string `json:"traceparent,omitempty"`
	// Parent is the span that caused the run; "" when the run begins a trace.
	Parent string `json:"parent,omitempty"`
	// RequestID is the id of the request that caused the run.
	RequestID string `json:"requestId,omitempty"`
}

// BeginRun chooses the span of a run that begins.
func BeginRun(o Origin) Run {
	r := Run{RequestID: o.RequestID}
	p := present.Load()
	if p == nil {
		return r
	}
	// This span is not ended, so it is never exported: it gives the ids, and the decision of the sampler.
	_, span := p.Tracer.Start(o.With(context.Background()), "invoke_agent", trace.WithSpanKind(trace.SpanKindInternal))
	r.Traceparent = traceparent(span.SpanContext())
	if parse(o.Traceparent).IsValid() {
		r.Parent = o.Traceparent
	}
	return r
}

// With returns a context for what belongs to the run.
func (r Run) With(ctx context.Context) context.Context {
	return Origin{Traceparent: r.Traceparent, RequestID: r.RequestID}.With(ctx)
}

// TraceID returns the id of the run's trace, or "".
func (r Run) TraceID() string {
	if sc := parse(r.Traceparent); sc.IsValid() {
		return sc.TraceID().String()
	}
	return ""
}

// End makes the span of the run, from when the run began until it ended. failed is why it failed, as one of a small set of words; ""
// when it did not.
func (r Run) End(name, namespace string, began, ended time.Time, failed, message string, attrs ...attribute.KeyValue) {
	p, own := present.Load(), parse(r.Traceparent)
	if p == nil || !own.IsSampled() {
		return
	}
	ctx := Origin{Traceparent: r.Parent}.With(context.Background())
	ctx = context.WithValue(ctx, chosenKey{}, own)
	_, span := p.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal), trace.WithTimestamp(began), trace.WithAttributes(attrs...))
	if failed != "" {
		(&Span{span: span, namespace: namespace, redact: p.Redact}).Fail(failed, message)
	}
	span.End(trace.WithTimestamp(ended))
}

type chosenKey struct{}

// Chosen returns the ids that the span which is started with ctx must have. The generator of ids asks for them.
func Chosen(ctx context.Context) (trace.SpanContext, bool) {
	sc, ok := ctx.Value(chosenKey{}).(trace.SpanContext)
	return sc, ok
}
