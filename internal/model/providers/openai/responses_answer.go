package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// responseAnswer collects the events of one streamed response. The result is the complete response in the last event,
// or the finished items when a server leaves its output out.
type responseAnswer struct {
	quiet  bool
	events int
	items  []responses.ResponseOutputItemUnion
	final  *responses.Response
	failed *failed
}

// failed is the content of an error event.
type failed struct{ code, message string }

// ended reports whether the last event has arrived.
func (a *responseAnswer) ended() bool { return a.final != nil || a.failed != nil }

func (a *responseAnswer) add(e responses.ResponseStreamEventUnion, emit func(model.Delta)) {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		emit(model.Delta{Text: e.Delta})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		if !a.quiet {
			emit(model.Delta{Reasoning: e.Delta})
		}
	case "response.output_item.done":
		a.items = append(a.items, e.Item)
	case "response.completed", "response.incomplete", "response.failed":
		r := e.Response
		a.final = &r
	case "error":
		a.failed = &failed{code: e.Code, message: e.Message}
	default:
		if !strings.HasPrefix(e.Type, "response.") {
			return // not part of this protocol
		}
	}
	a.events++
}

// response checks that the answer is complete and returns it.
func (a *responseAnswer) response(call context.Context, c *Client, session string) (*model.Response, error) {
	if a.final != nil && a.final.Status == responses.ResponseStatusFailed {
		a.failed = &failed{code: string(a.final.Error.Code), message: a.final.Error.Message}
	}
	shown := c.endpoint.Shown()
	switch {
	case a.failed != nil:
		return nil, c.endpoint.Explain(call, wire.Failure{
			Streamed: true, Said: orElse(a.failed.message, "it does not say why"), Code: a.failed.code, Passing: passingCode(a.failed.code),
		})
	case a.events == 0:
		return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s answered with something that is not a stream of the responses API: check spec.endpoint of the Model, or set spec.api to chat", shown)
	case a.final == nil:
		return nil, c.endpoint.Broken()
	case session != "" && a.final.PreviousResponseID != session:
		// The server has answered only the new messages, which can mean anything.
		e := model.Errorf(model.KindStatus, "the endpoint %s does not continue earlier responses: set spec.sessions of the Model to false", shown)
		e.Status = http.StatusNotFound
		return nil, e
	}
	out := &model.Response{FinishReason: "stop"}
	switch reason := a.final.IncompleteDetails.Reason; {
	case reason == finishFiltered:
		return nil, filtered(shown)
	case reason == "max_output_tokens":
		out.FinishReason = "length"
	case reason != "":
		out.FinishReason = reason
	}
	items := a.final.Output
	if len(items) == 0 {
		items = a.items
	}
	if err := a.gather(out, items, shown); err != nil {
		return nil, err
	}
	if c.keeps() {
		out.Session = a.final.ID
		out.Metadata = nil
	}
	if u := a.final.Usage; a.final.JSON.Usage.Valid() {
		out.Usage = model.Reported(model.Usage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.InputTokensDetails.CachedTokens,
			CacheWriteTokens: u.InputTokensDetails.CacheWriteTokens, ReasoningTokens: u.OutputTokensDetails.ReasoningTokens,
		})
	}
	return out, nil
}

// gather combines the items of an output.
func (a *responseAnswer) gather(out *model.Response, items []responses.ResponseOutputItemUnion, shown string) error {
	var content, reasoning []string
	var kept []any
	for _, item := range items {
		switch item.Type {
		case "message":
			for _, part := range item.Content {
				content = append(content, part.Text+part.Refusal)
				out.Refused = out.Refused || part.Refusal != ""
			}
		case "function_call":
			if item.Name == "" {
				return model.Errorf(model.KindBadAnswer, "the endpoint %s sent a tool call without a name", shown)
			}
			if len(out.ToolCalls) == maxToolCalls {
				return model.Errorf(model.KindBadAnswer, "the model asked for more than %d tool calls at once", maxToolCalls)
			}
			out.ToolCalls = append(out.ToolCalls, model.ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.AsFunctionCall().Arguments})
			out.FinishReason = "tool_calls"
		case "reasoning":
			for _, part := range item.Summary {
				reasoning = append(reasoning, part.Text)
			}
			if item.EncryptedContent != "" {
				kept = append(kept, map[string]any{"id": item.ID, "encrypted": item.EncryptedContent})
			}
		}
	}
	out.Content = strings.Join(content, "")
	if !a.quiet {
		out.Reasoning = strings.Join(reasoning, "\n\n")
	}
	if len(kept) > 0 {
		out.Metadata = map[string]any{metadataReasoning: kept}
	}
	return nil
}
