package openai

import (
	"context"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/skein-dev/skein/internal/model"
)

// streamChat makes a call with the chat completions API.
func (c *Client) streamChat(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	params, err := c.chatParams(call, req)
	if err != nil {
		return nil, err
	}
	var raw *http.Response
	stream := c.chat.NewStreaming(call, params, option.WithResponseInto(&raw))
	defer func() { _ = stream.Close() }()

	a := answer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	for stream.Next() {
		if err := a.add(stream.Current(), emit); err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil || (raw != nil && raw.StatusCode >= http.StatusBadRequest) {
		return nil, c.explain(ctx, call, err, raw, a.chunks > 0)
	}
	return a.response(c.endpoint)
}

// chatParams converts a request to the SDK's parameters.
func (c *Client) chatParams(ctx context.Context, req model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         c.spec.Model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
		Temperature:   optional(c.options.temperature),
		TopP:          optional(c.options.topP),
	}
	// OpenAI's newer models refuse max_tokens. Most other servers support nothing else.
	if c.endpoint.Host == ownHost {
		p.MaxCompletionTokens = optional(c.options.maxTokens)
	} else {
		p.MaxTokens = optional(c.options.maxTokens)
	}
	if r := req.Reasoning; r != nil && r.Effort != "" {
		p.ReasoningEffort = shared.ReasoningEffort(r.Effort)
	}
	if len(req.Schema) > 0 {
		schema, err := answerSchema(req)
		if err != nil {
			return p, err
		}
		p.ResponseFormat = sdk.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: orElse(req.SchemaName, "answer"), Schema: schema},
		}}
	}
	var err error
	if p.Messages, err = chatMessages(ctx, req.Messages); err != nil {
		return p, err
	}
	return p, chatTools(&p, req)
}

func chatTools(p *sdk.ChatCompletionNewParams, req model.Request) error {
	for _, t := range req.Tools {
		schema, err := parameters(t)
		if err != nil {
			return err
		}
		f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: schema}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	if len(p.Tools) == 0 {
		return nil
	}
	if req.ToolChoice != "" {
		p.ToolChoice = sdk.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt(string(req.ToolChoice))}
	}
	p.ParallelToolCalls = optional(req.ParallelToolCalls)
	return nil
}

// chatMessages converts the conversation. Results cannot contain images, so a user message right after them has their
// images.
func chatMessages(ctx context.Context, messages []model.Message) ([]sdk.ChatCompletionMessageParamUnion, error) {
	out := make([]sdk.ChatCompletionMessageParamUnion, 0, len(messages))
	var held []model.Image
	for i, m := range messages {
		switch m.Role {
		case model.RoleSystem:
			out = append(out, sdk.SystemMessage(m.Text()))
		case model.RoleAssistant:
			out = append(out, chatAnswer(m))
		case model.RoleTool:
			out = append(out, sdk.ToolMessage(m.Text(), m.ToolCallID))
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

func chatUser(ctx context.Context, text string, images []model.Image) (sdk.ChatCompletionMessageParamUnion, error) {
	if len(images) == 0 {
		return sdk.UserMessage(text), nil
	}
	parts := make([]sdk.ChatCompletionContentPartUnionParam, 0, len(images)+1)
	if text != "" {
		parts = append(parts, sdk.TextContentPart(text))
	}
	for _, image := range images {
		url, err := image.DataURL(ctx)
		if err != nil {
			return sdk.ChatCompletionMessageParamUnion{}, err
		}
		parts = append(parts, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: url, Detail: image.Detail}))
	}
	return sdk.UserMessage(parts), nil
}

func chatAnswer(m model.Message) sdk.ChatCompletionMessageParamUnion {
	var a sdk.ChatCompletionAssistantMessageParam
	if text := m.Text(); text != "" || len(m.ToolCalls) == 0 {
		a.Content.OfString = param.NewOpt(text)
	}
	for _, tc := range m.ToolCalls {
		a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: tc.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: tc.Name, Arguments: validArguments(tc.Arguments),
				},
			},
		})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &a}
}
