package anthropic

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/skein-dev/skein/internal/model"
)

// params converts a request to the SDK's parameters.
func (c *Client) params(ctx context.Context, req model.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: c.spec.Model, MaxTokens: c.maxTokens}
	if c.temperature != nil {
		p.Temperature = param.NewOpt(*c.temperature)
	}
	if c.topP != nil {
		p.TopP = param.NewOpt(*c.topP)
	}
	c.think(&p, req.Reasoning)
	if len(req.Schema) > 0 {
		if err := json.Unmarshal(req.Schema, &p.OutputConfig.Format.Schema); err != nil {
			return p, model.Errorf(model.KindConfig, "the schema of the answer is not a JSON object: %v", err)
		}
	}
	messages := req.Messages
	for len(messages) > 0 && messages[0].Role == model.RoleSystem {
		if text := messages[0].Text(); says(text) {
			p.System = append(p.System, sdk.TextBlockParam{Text: text})
		}
		messages = messages[1:]
	}
	if n := len(p.System); n > 0 {
		p.System[n-1].CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	turns, err := turnsOf(ctx, messages)
	if err != nil {
		return p, err
	}
	p.Messages = turns
	return p, tools(&p, req)
}

// minThinking is the smallest budget that the API accepts.
const minThinking = 1024

// think requests reasoning: by a budget when one is set, or else by effort.
func (c *Client) think(p *sdk.MessageNewParams, r *model.Reasoning) {
	switch {
	case r == nil:
		return
	case r.MaxTokens > 0:
		budget := max(r.MaxTokens, minThinking)
		on := sdk.ThinkingConfigEnabledParam{BudgetTokens: budget, Display: sdk.ThinkingConfigEnabledDisplaySummarized}
		if r.Exclude {
			on.Display = sdk.ThinkingConfigEnabledDisplayOmitted
		}
		p.Thinking.OfEnabled = &on
		if p.MaxTokens <= budget { // the budget is part of the token limit of an answer
			p.MaxTokens += budget
		}
	case r.Effort == "none":
		off := sdk.NewThinkingConfigDisabledParam()
		p.Thinking.OfDisabled = &off
		return
	case r.Effort != "":
		on := sdk.ThinkingConfigAdaptiveParam{Display: sdk.ThinkingConfigAdaptiveDisplaySummarized}
		if r.Exclude {
			on.Display = sdk.ThinkingConfigAdaptiveDisplayOmitted
		}
		p.Thinking.OfAdaptive = &on
		p.OutputConfig.Effort = sdk.OutputConfigEffort(r.Effort)
		if r.Effort == "minimal" {
			p.OutputConfig.Effort = sdk.OutputConfigEffortLow
		}
	default:
		return
	}
	p.Temperature, p.TopP = param.Opt[float64]{}, param.Opt[float64]{} // models that reason accept neither
}

func tools(p *sdk.MessageNewParams, req model.Request) error {
	for _, t := range req.Tools {
		schema := map[string]any{}
		if len(t.Parameters) > 0 {
			if err := json.Unmarshal(t.Parameters, &schema); err != nil {
				return model.Errorf(model.KindConfig, "the parameters of tool %s are not a JSON object: %v", t.Name, err)
			}
		}
		delete(schema, "type") // the SDK sets the type to object
		tool := sdk.ToolParam{Name: t.Name, InputSchema: sdk.ToolInputSchemaParam{Properties: map[string]any{}, ExtraFields: schema}}
		if properties, ok := schema["properties"]; ok {
			tool.InputSchema.Properties = properties
			delete(schema, "properties")
		}
		if t.Description != "" {
			tool.Description = param.NewOpt(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if len(p.Tools) == 0 {
		called(p)
		return nil
	}
	p.Tools[len(p.Tools)-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	var one param.Opt[bool]
	if req.ParallelToolCalls != nil && !*req.ParallelToolCalls {
		one = param.NewOpt(true)
	}
	switch req.ToolChoice {
	case model.ToolChoiceRequired:
		p.ToolChoice.OfAny = &sdk.ToolChoiceAnyParam{DisableParallelToolUse: one}
	case model.ToolChoiceNone:
		p.ToolChoice.OfNone = &sdk.ToolChoiceNoneParam{}
	default:
		p.ToolChoice.OfAuto = &sdk.ToolChoiceAutoParam{DisableParallelToolUse: one}
	}
	return nil
}

// maxToolName is the longest name of a tool.
const maxToolName = 128

// called defines the tools that were called in a conversation, for a request that offers no tools: the API refuses such
// calls when no tools are defined. The tools cannot be called again.
func called(p *sdk.MessageNewParams) {
	seen := map[string]bool{}
	for i := range p.Messages {
		for _, block := range p.Messages[i].Content {
			if block.OfToolUse == nil {
				continue
			}
			name := validID(block.OfToolUse.Name)
			if name = name[:min(len(name), maxToolName)]; name == "" || seen[name] {
				continue
			}
			seen[name] = true
			p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: &sdk.ToolParam{
				Name: name, Description: param.NewOpt("Was called earlier in this conversation, and cannot be called any more."),
				InputSchema: sdk.ToolInputSchemaParam{Properties: map[string]any{}},
			}})
		}
	}
	if len(p.Tools) > 0 {
		p.ToolChoice.OfNone = &sdk.ToolChoiceNoneParam{}
	}
}

// Texts that stand in for turns which the API demands and the conversation lacks.
const (
	opening  = "(the conversation begins with an answer)"
	goOn     = "(go on)"
	cachedIn = 2 // of the newest user turns: one reads what was cached, one adds to it
)

// turnsOf returns the conversation as alternating turns of the user and of the assistant. Tool results and the messages
// after them form one turn of the user.
func turnsOf(ctx context.Context, messages []model.Message) ([]sdk.MessageParam, error) {
	var out []sdk.MessageParam
	add := func(role sdk.MessageParamRole, blocks ...sdk.ContentBlockParamUnion) {
		if len(blocks) == 0 {
			return
		}
		if len(out) == 0 && role == sdk.MessageParamRoleAssistant {
			out = append(out, sdk.NewUserMessage(sdk.NewTextBlock(opening)))
		}
		if n := len(out); n > 0 && out[n-1].Role == role {
			out[n-1].Content = append(out[n-1].Content, blocks...)
			return
		}
		out = append(out, sdk.MessageParam{Role: role, Content: blocks})
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleAssistant:
			add(sdk.MessageParamRoleAssistant, answerBlocks(m)...)
		case model.RoleTool:
			block, err := resultBlock(ctx, m)
			if err != nil {
				return nil, err
			}
			add(sdk.MessageParamRoleUser, block)
		default:
			blocks, err := userBlocks(ctx, m)
			if err != nil {
				return nil, err
			}
			add(sdk.MessageParamRoleUser, blocks...)
		}
	}
	if n := len(out); n == 0 || out[n-1].Role == sdk.MessageParamRoleAssistant {
		add(sdk.MessageParamRoleUser, sdk.NewTextBlock(goOn))
	}
	marked := 0
	for i := len(out) - 1; i >= 0 && marked < cachedIn; i-- {
		if out[i].Role != sdk.MessageParamRoleUser {
			continue
		}
		if cc := out[i].Content[len(out[i].Content)-1].GetCacheControl(); cc != nil {
			*cc = sdk.NewCacheControlEphemeralParam()
			marked++
		}
	}
	return out, nil
}

// says reports whether a text may be a block. The API refuses blocks of white space only, which other models put before
// their calls, and would then refuse every later request of the conversation.
func says(text string) bool { return strings.TrimSpace(text) != "" }

func userBlocks(ctx context.Context, m model.Message) ([]sdk.ContentBlockParamUnion, error) {
	var blocks []sdk.ContentBlockParamUnion
	for _, image := range m.Images {
		data, err := image.Base64(ctx)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, sdk.NewImageBlockBase64(image.MimeType, data))
	}
	if text := m.Text(); says(text) {
		blocks = append(blocks, sdk.NewTextBlock(text))
	}
	return blocks, nil
}

func resultBlock(ctx context.Context, m model.Message) (sdk.ContentBlockParamUnion, error) {
	block := sdk.ToolResultBlockParam{ToolUseID: validID(m.ToolCallID)}
	if text := m.Text(); says(text) {
		block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfText: &sdk.TextBlockParam{Text: text}})
	}
	for _, image := range m.Images {
		data, err := image.Base64(ctx)
		if err != nil {
			return sdk.ContentBlockParamUnion{}, err
		}
		block.Content = append(block.Content, sdk.ToolResultBlockParamContentUnion{OfImage: sdk.NewImageBlockBase64(image.MimeType, data).OfImage})
	}
	return sdk.ContentBlockParamUnion{OfToolResult: &block}, nil
}

// answerBlocks returns an earlier answer with the reasoning before its calls: the API refuses calls without it.
func answerBlocks(m model.Message) []sdk.ContentBlockParamUnion {
	var blocks []sdk.ContentBlockParamUnion
	thoughts, _ := m.Metadata[metadataThinking].([]any)
	for _, t := range thoughts {
		fields, _ := t.(map[string]any)
		signature, _ := fields["signature"].(string)
		thinking, _ := fields["thinking"].(string)
		redacted, _ := fields["redacted"].(string)
		switch {
		case redacted != "":
			blocks = append(blocks, sdk.NewRedactedThinkingBlock(redacted))
		case signature != "":
			blocks = append(blocks, sdk.NewThinkingBlock(signature, thinking))
		}
	}
	if text := m.Text(); says(text) {
		blocks = append(blocks, sdk.NewTextBlock(text))
	}
	for _, call := range m.ToolCalls {
		blocks = append(blocks, sdk.NewToolUseBlock(validID(call.ID), input(call.Arguments), call.Name))
	}
	return blocks
}

// input returns the input of a call as the API accepts it: an object, whatever the model wrote.
func input(arguments string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return json.RawMessage(arguments)
	}
	wrapped, err := json.Marshal(map[string]string{"invalid_json": arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return wrapped
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// validID replaces the characters of an id of another provider, or of a client, that this provider does not accept.
func validID(id string) string { return notInID.ReplaceAllString(id, "_") }
