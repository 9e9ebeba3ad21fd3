// Package runtrace has the spans and the metrics of runs and of their tool calls.
package runtrace

import (
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/tool"
)

// Begin chooses the span of a new run: below the span that caused the first of its items.
func Begin(items []store.InboxItem) telemetry.Run {
	for _, item := range items {
		if o := telemetry.ReadOrigin(item.Payload); o != (telemetry.Origin{}) {
			return telemetry.BeginRun(o)
		}
	}
	return telemetry.BeginRun(telemetry.Origin{})
}

// SpanOf returns the span of a run from its stored state, for callers that end a run without executing it.
func SpanOf(r *store.Run) telemetry.Run {
	state, err := runstate.Read(r)
	if err != nil {
		return telemetry.Run{} // of a newer release: then the run has no span
	}
	return state.Telemetry
}

// RecordEnd counts a run that has ended, and makes its span. The end of the run is in the store.
func RecordEnd(t *store.Thread, r *store.Run, span telemetry.Run) {
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
	var used usage.Run
	if len(r.Usage) > 0 && json.Unmarshal(r.Usage, &used) == nil {
		attrs = append(attrs, semconv.GenAIUsageInputTokens(int(used.InputTokens)), semconv.GenAIUsageOutputTokens(int(used.OutputTokens)))
	}
	span.End("invoke_agent "+r.Agent, t.Namespace, began, ended, failed, r.Message, attrs...)
}

// Call begins the span of a tool call. known reports whether there is a tool of that name: models invent names without
// end. done ends the span, and counts the call.
func Call(ctx context.Context, clk clock.PassiveClock, t *store.Thread, call store.ToolCall, known bool) (_ context.Context, done func(result *tool.Result, panicked bool)) {
	ctx, span := telemetry.StartWithin(ctx, "execute_tool "+call.Name, trace.SpanKindInternal, t.Namespace,
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(call.Name), semconv.GenAIToolCallID(call.ID), semconv.GenAIToolType("function"),
		semconv.GenAIConversationID(t.ID), attribute.String("skein.namespace", t.Namespace), attribute.String("skein.thread.name", t.Name))
	span.SetContent(semconv.GenAIToolCallArgumentsKey, call.Arguments)
	began := clk.Now()
	return ctx, func(result *tool.Result, panicked bool) {
		name := call.Name
		if !known {
			name = ""
		}
		status := string(result.Status)
		switch {
		case panicked:
			status = "panic"
		case result.Wait != nil:
			status = "waits"
		case result.Prompt != nil:
			status = "prompt"
		case status == "":
			status = "interrupted"
		}
		metrics.ToolCalled(t.Namespace, name, status, clk.Since(began))
		span.Set(attribute.String("skein.tool.status", status))
		if status == string(tool.StatusError) || panicked {
			span.Fail("tool_error", result.Content)
		}
		span.SetContent(semconv.GenAIToolCallResultKey, result.Content)
		span.End()
	}
}
