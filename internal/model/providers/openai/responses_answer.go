package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// responseAnswer collects the events of one streamed response. The result is the complete response in the last event,
// or the finished items when a server leaves its output out.
type responseAnswer struct {
	quiet  bool
	events int
	items  []outputItem
	final  *response
	failed *failed
}

// failed is the content of an error event.
type failed struct{ code, message string }

// ended reports whether the last event has arrived.
func (a *responseAnswer) ended() bool { return a.final != nil || a.failed != nil }

func (a *responseAnswer) add(e responsesEvent, emit func(model.Delta)) {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		emit(model.Delta{Text: string(e.Delta)})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		if !a.quiet {
			emit(model.Delta{Reasoning: string(e.Delta)})
		}
	case "response.output_item.done":
		a.items = append(a.items, e.Item.Value)
	case "response.completed", "response.incomplete", "response.failed":
		a.final = &e.Response.Value
	case "error":
		a.failed = &failed{code: string(e.Code), message: string(e.Message)}
	default:
		if !strings.HasPrefix(string(e.Type), "response.") {
			return // not part of this protocol
		}
	}
	a.events++
}

// response checks that the answer is complete and returns it.
func (a *responseAnswer) response(call context.Context, c *Client, session string) (*model.Response, error) {
	if a.final != nil && a.final.Status == statusFailed {
		said := a.final.Error.Value
		a.failed = &failed{code: string(said.Code), message: string(said.Message)}
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
	case session != "" && string(a.final.PreviousResponseID) != session:
		// The server has answered only the new messages, which can mean anything.
		e := model.Errorf(model.KindStatus, "the endpoint %s does not continue earlier responses: set spec.sessions of the Model to false", shown)
		e.Status = http.StatusNotFound
		return nil, e
	}
	out := &model.Response{FinishReason: "stop"}
	switch reason := string(a.final.IncompleteDetails.Value.Reason); {
	case reason == finishFiltered:
		return nil, filtered(shown)
	case reason == "max_output_tokens":
		out.FinishReason = "length"
	case reason != "":
		out.FinishReason = reason
	}
	items := []outputItem(a.final.Output)
	if len(items) == 0 {
		items = a.items
	}
	if err := a.gather(out, items, c); err != nil {
		return nil, err
	}
	if c.keeps() {
		out.Session = string(a.final.ID)
		out.Metadata = nil
	}
	if u := a.final.Usage.Value; a.final.Usage.Present {
		out.Usage = usageOf(u.Input, u.Output, u.InputDetails.Value, u.Details.Value)
	}
	return out, nil
}

// gather combines the items of an output.
func (a *responseAnswer) gather(out *model.Response, items []outputItem, c *Client) error {
	var content, reasoning []string
	var kept []any
	for _, item := range items {
		switch item.Type {
		case "message":
			for _, part := range item.Content {
				content = append(content, string(part.Text+part.Refusal))
				out.Refused = out.Refused || part.Refusal != ""
			}
		case "function_call":
			if item.Name == "" {
				return model.Errorf(model.KindBadAnswer, "the endpoint %s sent a tool call without a name", c.endpoint.Shown())
			}
			if len(out.ToolCalls) == maxToolCalls {
				return model.Errorf(model.KindBadAnswer, "the model asked for more than %d tool calls at once", maxToolCalls)
			}
			out.ToolCalls = append(out.ToolCalls, model.ToolCall{ID: string(item.CallID), Name: string(item.Name), Arguments: string(item.Arguments)})
			out.FinishReason = "tool_calls"
		case "reasoning":
			for _, part := range item.Summary {
				reasoning = append(reasoning, string(part.Text))
			}
			if item.EncryptedContent != "" {
				kept = append(kept, map[string]any{"id": string(item.ID), "encrypted": string(item.EncryptedContent)})
			}
		}
	}
	out.Content = strings.Join(content, "")
	if !a.quiet {
		out.Reasoning = strings.Join(reasoning, "\n\n")
	}
	if len(kept) > 0 {
		out.Metadata = c.origin.Metadata(model.MetadataReasoning, kept)
	}
	return nil
}
