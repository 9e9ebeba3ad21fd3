package engine

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/tool"
)

// beginTelemetry chooses the span of a new run: below the span that caused the first of its items.
func beginTelemetry(items []store.InboxItem) telemetry.Run {
	for _, item := range items {
		if o := telemetry.ReadOrigin(item.Payload); o != (telemetry.Origin{}) {
			return telemetry.BeginRun(o)
		}
	}
	return telemetry.BeginRun(telemetry.Origin{})
}

// telemetryOf returns the span of a run that is not executed here.
func telemetryOf(r *store.Run) telemetry.Run {
	state, err := checkpoint.Read(r)
	if err != nil {
		return telemetry.Run{} // of a newer release: then the run has no span
	}
	return state.Telemetry
}

// observeEnd counts a run that has ended, and makes its span. The end of the run is in the store.
func observeEnd(t *store.Thread, r *store.Run, span telemetry.Run) {
	began, ended := time.UnixMicro(r.StartedAt), time.UnixMicro(r.EndedAt)
	metrics.RunEnded(t.Namespace, string(r.Status), ended.Sub(began))
	if span.Traceparent == "" {
		return
	}
	failed := ""
	if r.Status == store.RunFailed {
		failed = r.Reason
	}
	attrs := []attribute.KeyValue{
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(r.Agent), semconv.GenAIConversationID(t.ID),
		attribute.String("skein.namespace", t.Namespace), attribute.String("skein.thread.name", t.Name), attribute.String("skein.run.id", r.ID),
		attribute.String("skein.run.status", string(r.Status)), attribute.String("skein.run.reason", r.Reason), attribute.Int("skein.run.steps", r.Steps),
	}
	if span.RequestID != "" {
		attrs = append(attrs, attribute.String("skein.request.id", span.RequestID))
	}
	var usage runUsage
	if len(r.Usage) > 0 && json.Unmarshal(r.Usage, &usage) == nil {
		attrs = append(attrs, semconv.GenAIUsageInputTokens(int(usage.InputTokens)), semconv.GenAIUsageOutputTokens(int(usage.OutputTokens)))
	}
	span.End("invoke_agent "+r.Agent, t.Namespace, began, ended, failed, r.Message, attrs...)
}

// observeCall begins the span of a tool call. done ends it, and counts the call.
func (r *run) observeCall(ctx context.Context, how making, call store.ToolCall) (_ context.Context, done func(o *outcome)) {
	ctx, span := telemetry.StartWithin(ctx, "execute_tool "+call.Name, trace.SpanKindInternal, r.thread.Namespace,
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(call.Name), semconv.GenAIToolCallID(call.ID), semconv.GenAIToolType("function"),
		semconv.GenAIConversationID(r.thread.ID), attribute.String("skein.namespace", r.thread.Namespace), attribute.String("skein.thread.name", r.thread.Name))
	span.SetContent(semconv.GenAIToolCallArgumentsKey, call.Arguments)
	began := r.engine.opts.Clock.Now()
	return ctx, func(o *outcome) {
		name := call.Name
		if !how.set.Has(name) {
			name = "" // models invent names without end
		}
		status := string(o.result.Status)
		switch {
		case o.panicked:
			status = "panic"
		case o.result.Wait != nil:
			status = "waits"
		case o.result.Prompt != nil:
			status = "prompt"
		case status == "":
			status = "interrupted"
		}
		metrics.ToolCalled(r.thread.Namespace, name, status, r.engine.opts.Clock.Since(began))
		span.Set(attribute.String("skein.tool.status", status))
		if status == string(tool.StatusError) || o.panicked {
			span.Fail("tool_error", o.result.Content)
		}
		span.SetContent(semconv.GenAIToolCallResultKey, o.result.Content)
		span.End()
	}
}
