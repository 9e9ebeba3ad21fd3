// Package telemetry makes the spans of OpenTelemetry traces, and carries where work comes from: the span and the request
// that caused it. It costs next to nothing until Install is called. Package otlp installs a provider that exports spans.
package telemetry

import (
	"context"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation, which every span has.
const Scope = "github.com/skein-dev/skein"

// Provider is what spans are made with.
type Provider struct {
	Tracer trace.Tracer
	// Redact removes the secrets of a namespace from content. With nil, spans have no content: no prompts, arguments and results.
	Redact func(namespace, text string) string
}

// present is nil while there are no traces.
var present atomic.Pointer[Provider]

// Install makes all spans from now on with a provider. nil means that there are none.
func Install(p *Provider) { present.Store(p) }

// Enabled reports whether there are traces.
func Enabled() bool { return present.Load() != nil }

// Span is a span, or nothing. The methods of a nil Span do nothing.
type Span struct {
	span      trace.Span
	namespace string
	redact    func(namespace, text string) string
}

// Start begins a span below the one of ctx. It returns nil when there are no traces, or this one is not sampled.
func Start(ctx context.Context, name string, kind trace.SpanKind, namespace string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	p := present.Load()
	if p == nil {
		return ctx, nil
	}
	ctx, span := p.Tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, &Span{span: span, namespace: namespace, redact: p.Redact}
}

// StartWithin begins a span like Start, but only below another span: it begins no trace of its own.
func StartWithin(ctx context.Context, name string, kind trace.SpanKind, namespace string, attrs ...attribute.KeyValue) (context.Context, *Span) {
	if !Enabled() || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, nil
	}
	return Start(ctx, name, kind, namespace, attrs...)
}

// Set adds attributes.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attrs...)
	}
}

// HasContent reports whether SetContent adds anything, so that callers need not make what it would drop.
func (s *Span) HasContent() bool { return s != nil && s.redact != nil }

// maxContent bounds an attribute with content, in bytes.
const maxContent = 64 << 10

// SetContent adds an attribute with what people, models or tools wrote, without secrets. It does nothing unless content was asked for.
func (s *Span) SetContent(key attribute.Key, text string) {
	if s.HasContent() {
		s.span.SetAttributes(key.String(cut(s.redact(s.namespace, text))))
	}
}

// cut returns at most maxContent bytes of a text.
func cut(text string) string {
	if len(text) <= maxContent {
		return text
	}
	n := maxContent
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// Fail marks the span as failed. kind is one of a small set of words. message may quote content, so it is added only where content is.
func (s *Span) Fail(kind, message string) {
	if s == nil {
		return
	}
	text := ""
	if s.HasContent() {
		text = cut(s.redact(s.namespace, message))
	}
	s.span.SetAttributes(attribute.String("error.type", kind))
	s.span.SetStatus(codes.Error, text)
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}
