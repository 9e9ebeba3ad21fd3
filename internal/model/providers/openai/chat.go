package openai

import (
	"context"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// streamChat makes a call with the chat completions API.
func (c *Client) streamChat(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	body, err := c.chatRequest(call, req)
	if err != nil {
		return nil, err
	}
	res, failure := c.post(call, "chat/completions", body)
	if failure != nil {
		return nil, c.explain(ctx, call, *failure)
	}
	defer func() { _ = res.Body.Close() }()
	stream := ssestream.NewStream[chatChunk](ssestream.NewDecoder(res), nil)

	a := answer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	for stream.Next() {
		if err := a.add(stream.Current(), emit); err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, c.explain(ctx, call, wire.Failure{Err: err, Response: res, Begun: a.chunks > 0})
	}
	return a.response(c.endpoint)
}

// chatRequest converts a request to the one of the API.
func (c *Client) chatRequest(ctx context.Context, req model.Request) (*chatRequest, error) {
	p := &chatRequest{
		Model: c.spec.Model, Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		Temperature: c.options.temperature, TopP: c.options.topP,
	}
	// OpenAI's newer models refuse max_tokens. Most other servers support nothing else.
	if c.endpoint.Host == ownHost {
		p.MaxCompletionTokens = c.options.maxTokens
	} else {
		p.MaxTokens = c.options.maxTokens
	}
	if r := req.Reasoning; r != nil {
		p.ReasoningEffort = r.Effort
	}
	if len(req.Schema) > 0 {
		schema, err := answerSchema(req)
		if err != nil {
			return nil, err
		}
		p.ResponseFormat = &responseFormat{Type: "json_schema", JSONSchema: jsonSchema{Name: orElse(req.SchemaName, "answer"), Schema: schema}}
	}
	var err error
	if p.Messages, err = chatMessages(ctx, req); err != nil {
		return nil, err
	}
	return p, chatTools(p, req)
}

func chatTools(p *chatRequest, req model.Request) error {
	for _, t := range req.Tools {
		schema, err := parameters(t)
		if err != nil {
			return err
		}
		p.Tools = append(p.Tools, chatTool{Type: "function", Function: function{Name: t.Name, Description: t.Description, Parameters: schema}})
	}
	if len(p.Tools) > 0 {
		p.ToolChoice, p.ParallelToolCalls = string(req.ToolChoice), req.ParallelToolCalls
	}
	return nil
}

// chatMessages converts the conversation. Results cannot contain images, so a user message right after them has their
// images.
func chatMessages(ctx context.Context, req model.Request) ([]chatMessage, error) {
	messages := req.Messages
	out := make([]chatMessage, 0, len(messages))
	var held []model.Image
	for i, m := range messages {
		switch m.Role {
		case model.RoleSystem:
			out = append(out, chatMessage{Role: "system", Content: m.Text()})
		case model.RoleAssistant:
			out = append(out, chatAnswer(m, req.Tools))
		case model.RoleTool:
			out = append(out, chatMessage{Role: "tool", Content: m.Text(), ToolCallID: &m.ToolCallID})
			held = append(held, m.Images...)
			if last := i == len(messages)-1 || messages[i+1].Role != model.RoleTool; !last || len(held) == 0 {
				continue
			}
			user, err := chatUser(ctx, "[images of the results above]", held)
			if err != nil {
				return nil, err
			}
			out, held = append(out, user), nil
		default:
			user, err := chatUser(ctx, m.Text(), m.Images)
			if err != nil {
				return nil, err
			}
			out = append(out, user)
		}
	}
	return out, nil
}

func chatUser(ctx context.Context, text string, images []model.Image) (chatMessage, error) {
	if len(images) == 0 {
		return chatMessage{Role: "user", Content: text}, nil
	}
	parts := make([]contentPart, 0, len(images)+1)
	if text != "" {
		parts = append(parts, contentPart{Type: "text", Text: text})
	}
	for _, image := range images {
		url, err := image.DataURL(ctx)
		if err != nil {
			return chatMessage{}, err
		}
		parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{URL: url, Detail: image.Detail}})
	}
	return chatMessage{Role: "user", Content: parts}, nil
}

func chatAnswer(m model.Message, tools []model.Tool) chatMessage {
	a := chatMessage{Role: "assistant"}
	if text := m.Text(); text != "" || len(m.ToolCalls) == 0 {
		a.Content = text
	}
	for _, tc := range m.ToolCalls {
		a.ToolCalls = append(a.ToolCalls, chatCall{
			Type: "function", ID: tc.ID, Function: functionCall{Name: wire.ToolName(tc.Name, tools), Arguments: validArguments(tc.Arguments)},
		})
	}
	return a
}
