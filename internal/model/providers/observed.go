package providers

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/telemetry"
)

// observed makes a span of each call of one Model, and counts it. The retries of a call belong to it.
type observed struct {
	client model.Client
	model  model.Config
	clock  clock.PassiveClock
}

// Outcomes of calls beside the kinds of model.Error.
const (
	outcomeSuccess   = "success"
	outcomeCancelled = "cancelled"
	outcomeOther     = "other"
)

// Stream implements model.Client.
func (o *observed) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	began, first := o.clock.Now(), time.Duration(0)
	ctx, span := o.start(ctx, semconv.GenAIOperationNameChat, semconv.GenAIRequestStream(true))
	defer span.End()
	if span.HasContent() {
		span.SetContent(semconv.GenAIInputMessagesKey, messagesOf(req.Messages))
	}
	res, err := o.client.Stream(ctx, req, func(d model.Delta) {
		if first == 0 {
			first = o.clock.Since(began)
		}
		emit(d)
	})
	if errors.Is(err, model.ErrDeferred) { // nothing was sent
		span.Set(attribute.Bool("skein.model.deferred", true))
		return res, err
	}
	call := o.call(ctx, span, began, err)
	if res != nil && err == nil {
		usage(&call, span, res.Usage)
		span.Set(semconv.GenAIResponseModel(o.provided()), semconv.GenAIResponseFinishReasons(finishOf(res)))
		if first > 0 {
			span.Set(semconv.GenAIResponseTimeToFirstChunk(first.Seconds()))
		}
		if span.HasContent() {
			span.SetContent(semconv.GenAIOutputMessagesKey, messagesOf([]model.Message{{Role: model.RoleAssistant, Content: res.Content, ToolCalls: res.ToolCalls}}))
		}
	}
	metrics.ModelCalled(call)
	return res, err
}

// Fill implements model.Meter if the client does.
func (o *observed) Fill(req model.Request) (tokens, capacity int) { return model.FillOf(o.client, req) }

// Embed implements model.Embedder if the client does.
func (o *observed) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	e, err := model.EmbedderOf(o.client, o.model.Name)
	if err != nil {
		return nil, err
	}
	began := o.clock.Now()
	ctx, span := o.start(ctx, semconv.GenAIOperationNameEmbeddings)
	defer span.End()
	out, err := e.Embed(ctx, texts)
	call := o.call(ctx, span, began, err)
	if out != nil && err == nil {
		usage(&call, span, out.Usage)
	}
	metrics.ModelCalled(call)
	return out, err
}

// start begins the span of a call. Its name is the operation and the model, as the conventions say.
func (o *observed) start(ctx context.Context, operation attribute.KeyValue, attrs ...attribute.KeyValue) (context.Context, *telemetry.Span) {
	if !telemetry.Enabled() {
		return ctx, nil
	}
	return telemetry.StartWithin(ctx, operation.Value.AsString()+" "+o.provided(), trace.SpanKindClient, o.model.Namespace, append(attrs, operation,
		semconv.GenAIProviderNameKey.String(string(o.model.Spec.Provider)), semconv.GenAIRequestModel(o.provided()),
		attribute.String("skein.namespace", o.model.Namespace), attribute.String("skein.model.name", o.model.Name))...)
}

// provided returns the provider's name of the model.
func (o *observed) provided() string {
	if o.model.Spec.Model != "" {
		return o.model.Spec.Model
	}
	return o.model.Name
}

// call returns how a call ended, and marks its span.
func (o *observed) call(ctx context.Context, span *telemetry.Span, began time.Time, err error) metrics.ModelCall {
	outcome := outcomeSuccess
	var failed *model.Error
	switch {
	case err == nil:
	case errors.As(err, &failed):
		outcome = string(failed.Kind)
	case ctx.Err() != nil:
		outcome = outcomeCancelled
	default:
		outcome = outcomeOther
	}
	if err != nil {
		span.Fail(outcome, err.Error())
	}
	return metrics.ModelCall{
		Namespace: o.model.Namespace, Model: o.model.Name, Provider: string(o.model.Spec.Provider), Outcome: outcome, Took: o.clock.Since(began),
	}
}

func usage(call *metrics.ModelCall, span *telemetry.Span, u *model.Usage) {
	if u == nil {
		return
	}
	call.Input, call.Output, call.Cached, call.Reasoning = u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens
	call.Cost = float64(u.Cost) / 1e9
	span.Set(semconv.GenAIUsageInputTokens(int(u.InputTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)))
	if u.CachedTokens > 0 {
		span.Set(semconv.GenAIUsageCacheReadInputTokens(int(u.CachedTokens)))
	}
	if u.CacheWriteTokens > 0 {
		span.Set(semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheWriteTokens)))
	}
	if u.ReasoningTokens > 0 {
		span.Set(semconv.GenAIUsageReasoningOutputTokens(int(u.ReasoningTokens)))
	}
}

func finishOf(res *model.Response) string {
	if res.FinishReason == "" {
		return "stop"
	}
	return strings.ToLower(res.FinishReason)
}

// part is a piece of a message, in the form of the conventions.
type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// messagesOf returns messages as JSON, in the form of the conventions.
func messagesOf(messages []model.Message) string {
	type message struct {
		Role  model.Role `json:"role"`
		Parts []part     `json:"parts"`
	}
	out := make([]message, 0, len(messages))
	for _, m := range messages {
		to := message{Role: m.Role}
		if m.Role == model.RoleTool {
			to.Parts = append(to.Parts, part{Type: "tool_call_response", ID: m.ToolCallID, Response: m.Content})
		} else if m.Content != "" {
			to.Parts = append(to.Parts, part{Type: "text", Content: m.Text()})
		}
		for _, c := range m.ToolCalls {
			arguments := json.RawMessage(c.Arguments)
			if !json.Valid(arguments) {
				arguments, _ = json.Marshal(c.Arguments)
			}
			to.Parts = append(to.Parts, part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: arguments})
		}
		out = append(out, to)
	}
	text, _ := json.Marshal(out) // strings and valid JSON only: cannot fail
	return string(text)
}
