package openai

import (
	"context"
	"net/http"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/skein-dev/skein/internal/model"
)

// metadataReasoning is the metadata key that stores the reasoning of an answer with its message, encrypted by the
// provider, when the provider does not keep the conversation itself.
const metadataReasoning = "openai_reasoning"

// streamResponses makes a call with the responses API.
func (c *Client) streamResponses(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	params, err := c.responseParams(call, req)
	if err != nil {
		return nil, err
	}
	var raw *http.Response
	stream := c.responses.NewStreaming(call, params, option.WithResponseInto(&raw))
	defer func() { _ = stream.Close() }()

	a := responseAnswer{quiet: req.Reasoning != nil && req.Reasoning.Exclude}
	for !a.ended() && stream.Next() {
		a.add(stream.Current(), emit)
	}
	if err := stream.Err(); !a.ended() && (err != nil || (raw != nil && raw.StatusCode >= http.StatusBadRequest)) {
		return nil, c.explain(ctx, call, err, raw, a.events > 0)
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

// responseParams converts a request to the SDK's parameters.
func (c *Client) responseParams(ctx context.Context, req model.Request) (responses.ResponseNewParams, error) {
	p := responses.ResponseNewParams{
		Model:       c.spec.Model,
		Store:       param.NewOpt(c.keeps()),
		Temperature: optional(c.options.temperature), TopP: optional(c.options.topP),
		MaxOutputTokens: optional(c.options.maxTokens),
	}
	if !c.keeps() {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if r := req.Reasoning; r != nil {
		p.Reasoning.Effort = shared.ReasoningEffort(r.Effort)
		if !r.Exclude && r.Effort != "none" {
			p.Reasoning.Summary = shared.ReasoningSummaryAuto
		}
	}
	if len(req.Schema) > 0 {
		schema, err := answerSchema(req)
		if err != nil {
			return p, err
		}
		p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema(orElse(req.SchemaName, "answer"), schema)
	}
	messages := req.Messages
	if len(messages) > 0 && messages[0].Role == model.RoleSystem {
		// Instructions apply to one call, so they may differ from those at the start of the session.
		p.Instructions = param.NewOpt(messages[0].Text())
	}
	switch {
	case req.Session != "" && req.SessionMessages <= len(messages):
		p.PreviousResponseID = param.NewOpt(req.Session)
		messages = messages[req.SessionMessages:]
	case p.Instructions.Valid():
		messages = messages[1:]
	}
	items, err := responseItems(ctx, messages)
	if err != nil {
		return p, err
	}
	p.Input.OfInputItemList = items
	return p, responseTools(&p, req)
}

func responseTools(p *responses.ResponseNewParams, req model.Request) error {
	for _, t := range req.Tools {
		schema, err := parameters(t)
		if err != nil {
			return err
		}
		f := responses.FunctionToolParam{Name: t.Name, Parameters: schema, Strict: param.NewOpt(false)}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: &f})
	}
	if len(p.Tools) == 0 {
		return nil
	}
	if req.ToolChoice != "" {
		p.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptions(req.ToolChoice))
	}
	p.ParallelToolCalls = optional(req.ParallelToolCalls)
	return nil
}

func responseItems(ctx context.Context, messages []model.Message) (responses.ResponseInputParam, error) {
	var out responses.ResponseInputParam
	for _, m := range messages {
		switch m.Role {
		case model.RoleAssistant:
			out = append(out, reasoningItems(m)...)
			if text := m.Text(); text != "" {
				out = append(out, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleAssistant))
			}
			for _, tc := range m.ToolCalls {
				out = append(out, responses.ResponseInputItemParamOfFunctionCall(validArguments(tc.Arguments), tc.ID, tc.Name))
			}
		case model.RoleTool:
			item, err := functionOutput(ctx, m)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		default:
			role := responses.EasyInputMessageRoleUser
			if m.Role == model.RoleSystem {
				role = responses.EasyInputMessageRoleSystem
			}
			if len(m.Images) == 0 {
				out = append(out, responses.ResponseInputItemParamOfMessage(m.Text(), role))
				continue
			}
			var parts responses.ResponseInputMessageContentListParam
			if text := m.Text(); text != "" {
				parts = append(parts, responses.ResponseInputContentParamOfInputText(text))
			}
			for _, image := range m.Images {
				url, err := image.DataURL(ctx)
				if err != nil {
					return nil, err
				}
				parts = append(parts, responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
					Detail: responses.ResponseInputImageDetail(orElse(image.Detail, "auto")), ImageURL: param.NewOpt(url),
				}})
			}
			out = append(out, responses.ResponseInputItemParamOfMessage(parts, role))
		}
	}
	return out, nil
}

// functionOutput returns the result of a call with its images.
func functionOutput(ctx context.Context, m model.Message) (responses.ResponseInputItemUnionParam, error) {
	item := responses.ResponseInputItemFunctionCallOutputParam{CallID: param.NewOpt(m.ToolCallID)}
	if len(m.Images) == 0 {
		item.Output.OfString = param.NewOpt(m.Text())
		return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: &item}, nil
	}
	parts := responses.ResponseFunctionCallOutputItemListParam{{OfInputText: &responses.ResponseInputTextContentParam{Text: m.Text()}}}
	for _, image := range m.Images {
		url, err := image.DataURL(ctx)
		if err != nil {
			return responses.ResponseInputItemUnionParam{}, err
		}
		parts = append(parts, responses.ResponseFunctionCallOutputItemUnionParam{OfInputImage: &responses.ResponseInputImageContentParam{
			Detail: responses.ResponseInputImageContentDetail(orElse(image.Detail, "auto")), ImageURL: param.NewOpt(url),
		}})
	}
	item.Output.OfResponseFunctionCallOutputItemArray = parts
	return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: &item}, nil
}

// reasoningItems returns the reasoning items that an earlier answer stored.
func reasoningItems(m model.Message) responses.ResponseInputParam {
	list, _ := m.Metadata[metadataReasoning].([]any)
	var out responses.ResponseInputParam
	for _, e := range list {
		fields, _ := e.(map[string]any)
		id, _ := fields["id"].(string)
		encrypted, _ := fields["encrypted"].(string)
		if id == "" || encrypted == "" {
			continue
		}
		out = append(out, responses.ResponseInputItemUnionParam{OfReasoning: &responses.ResponseReasoningItemParam{
			ID: id, Summary: []responses.ResponseReasoningItemSummaryParam{}, EncryptedContent: param.NewOpt(encrypted),
		}})
	}
	return out
}
