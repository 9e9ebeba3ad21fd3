package openai

import (
	"context"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// streamResponses makes a call with the responses API.
func (c *Client) streamResponses(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	body, err := c.responsesRequest(call, req)
	if err != nil {
		return nil, err
	}
	res, failure := c.post(call, "responses", body)
	if failure != nil {
		return nil, c.explain(ctx, call, *failure)
	}
	defer func() { _ = res.Body.Close() }()
	stream := ssestream.NewStream[responsesEvent](ssestream.NewDecoder(res), nil)

	a := responseAnswer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	for !a.ended() && stream.Next() {
		a.add(stream.Current(), emit)
	}
	if err := stream.Err(); !a.ended() && err != nil {
		return nil, c.explain(ctx, call, wire.Failure{Err: err, Response: res, Begun: a.events > 0})
	}
	return a.response(call, c, req.Session)
}

// keeps reports whether the provider keeps the conversation. OpenAI does by default, and few other servers do.
func (c *Client) keeps() bool {
	if c.spec.Sessions != nil {
		return *c.spec.Sessions
	}
	return c.endpoint.Host == ownHost
}

// responsesRequest converts a request to the one of the API.
func (c *Client) responsesRequest(ctx context.Context, req model.Request) (*responsesRequest, error) {
	p := &responsesRequest{
		Model: c.spec.Model, Stream: true, Store: c.keeps(),
		Temperature: c.options.temperature, TopP: c.options.topP, MaxOutputTokens: c.options.maxTokens,
	}
	if !c.keeps() {
		p.Include = []string{"reasoning.encrypted_content"}
	}
	if r := req.Reasoning; r != nil {
		asked := reasoning{Effort: r.Effort}
		if !r.Exclude && r.Effort != "none" {
			asked.Summary = "auto"
		}
		if asked != (reasoning{}) {
			p.Reasoning = &asked
		}
	}
	if len(req.Schema) > 0 {
		schema, err := answerSchema(req)
		if err != nil {
			return nil, err
		}
		p.Text = &textFormat{Format: schemaFormat{Type: "json_schema", Name: orElse(req.SchemaName, "answer"), Schema: schema}}
	}
	messages := req.Messages
	if len(messages) > 0 && messages[0].Role == model.RoleSystem {
		// Instructions apply to one call, so they may differ from those at the start of the session.
		text := messages[0].Text()
		p.Instructions = &text
	}
	switch {
	case req.Session != "" && req.SessionMessages <= len(messages):
		p.PreviousResponseID = req.Session
		messages = messages[req.SessionMessages:]
	case p.Instructions != nil:
		messages = messages[1:]
	}
	var err error
	if p.Input, err = c.responseItems(ctx, messages, req.Tools); err != nil {
		return nil, err
	}
	return p, responseTools(p, req)
}

func responseTools(p *responsesRequest, req model.Request) error {
	for _, t := range req.Tools {
		schema, err := parameters(t)
		if err != nil {
			return err
		}
		p.Tools = append(p.Tools, responsesTool{Type: "function", Name: t.Name, Description: t.Description, Parameters: schema})
	}
	if len(p.Tools) > 0 {
		p.ToolChoice, p.ParallelToolCalls = string(req.ToolChoice), req.ParallelToolCalls
	}
	return nil
}

func (c *Client) responseItems(ctx context.Context, messages []model.Message, tools []model.Tool) ([]any, error) {
	var out []any
	for _, m := range messages {
		switch m.Role {
		case model.RoleAssistant:
			text := m.Text()
			if text == "" && len(m.ToolCalls) == 0 {
				continue // cut off within its reasoning: the API refuses reasoning that nothing follows
			}
			out = append(out, c.reasoningItems(m)...)
			if text != "" {
				out = append(out, inputMessage{Role: "assistant", Content: text})
			}
			for _, tc := range m.ToolCalls {
				out = append(out, inputCall{
					Type: "function_call", CallID: tc.ID, Name: wire.ToolName(tc.Name, tools), Arguments: validArguments(tc.Arguments),
				})
			}
		case model.RoleTool:
			item, err := functionOutput(ctx, m)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		default:
			role := "user"
			if m.Role == model.RoleSystem {
				role = "system"
			}
			text := m.Text()
			if len(m.Images) == 0 {
				out = append(out, inputMessage{Role: role, Content: text})
				continue
			}
			parts, err := images(ctx, m)
			if err != nil {
				return nil, err
			}
			if text != "" {
				parts = append([]any{inputText{Type: "input_text", Text: text}}, parts...)
			}
			out = append(out, inputMessage{Role: role, Content: parts})
		}
	}
	return out, nil
}

// functionOutput returns the result of a call with its images.
func functionOutput(ctx context.Context, m model.Message) (inputResult, error) {
	item := inputResult{Type: "function_call_output", CallID: m.ToolCallID, Output: m.Text()}
	if len(m.Images) == 0 {
		return item, nil
	}
	parts, err := images(ctx, m)
	item.Output = append([]any{inputText{Type: "input_text", Text: m.Text()}}, parts...)
	return item, err
}

// images returns the images of a message.
func images(ctx context.Context, m model.Message) ([]any, error) {
	var parts []any
	for _, image := range m.Images {
		url, err := image.DataURL(ctx)
		if err != nil {
			return nil, err
		}
		parts = append(parts, inputImage{Type: "input_image", Detail: orElse(image.Detail, "auto"), ImageURL: url})
	}
	return parts, nil
}

// reasoningItems returns the reasoning items that an earlier answer of the same model stored.
func (c *Client) reasoningItems(m model.Message) []any {
	var out []any
	for _, e := range c.origin.Reasoning(model.MetadataReasoning, m) {
		fields, _ := e.(map[string]any)
		id, _ := fields["id"].(string)
		encrypted, _ := fields["encrypted"].(string)
		if id == "" || encrypted == "" {
			continue
		}
		out = append(out, inputReasoning{Type: "reasoning", ID: id, Summary: []any{}, EncryptedContent: encrypted})
	}
	return out
}
