package anthropic

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// request converts a request to the one of the API.
func (c *Client) request(ctx context.Context, req model.Request) (*request, error) {
	p := &request{Model: c.spec.Model, MaxTokens: c.maxTokens, Stream: true, Temperature: c.temperature, TopP: c.topP}
	var output outputConfig
	if len(req.Schema) > 0 {
		var schema map[string]any
		if err := json.Unmarshal(req.Schema, &schema); err != nil {
			return nil, model.Errorf(model.KindConfig, "the schema of the answer is not a JSON object: %v", err)
		}
		if schema != nil {
			output.Format = &format{Type: "json_schema", Schema: schema}
		}
	}
	messages := req.Messages
	for len(messages) > 0 && messages[0].Role == model.RoleSystem {
		if text := messages[0].Text(); says(text) {
			p.System = append(p.System, textBlock(text))
		}
		messages = messages[1:]
	}
	if n := len(p.System); n > 0 {
		p.System[n-1].CacheControl = cached()
	}
	var err error
	if p.Messages, err = turnsOf(ctx, messages, req.Tools, c.origin(req.Reasoning)); err != nil {
		return nil, err
	}
	if c.think(p, &output, req.Reasoning); output != (outputConfig{}) {
		p.OutputConfig = &output
	}
	return p, tools(p, req)
}

func tools(p *request, req model.Request) error {
	for _, t := range req.Tools {
		var schema map[string]any
		if len(t.Parameters) > 0 {
			if err := json.Unmarshal(t.Parameters, &schema); err != nil {
				return model.Errorf(model.KindConfig, "the parameters of tool %s are not a JSON object: %v", t.Name, err)
			}
		}
		p.Tools = append(p.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: inputSchema(schema)})
	}
	if len(p.Tools) == 0 {
		defineCalledTools(p)
		return nil
	}
	p.Tools[len(p.Tools)-1].CacheControl = cached()
	one := req.ParallelToolCalls != nil && !*req.ParallelToolCalls
	switch req.ToolChoice {
	case model.ToolChoiceRequired:
		p.ToolChoice = &toolChoice{Type: "any", DisableParallelToolUse: one}
	case model.ToolChoiceNone:
		p.ToolChoice = &toolChoice{Type: "none"}
	default:
		p.ToolChoice = &toolChoice{Type: "auto", DisableParallelToolUse: one}
	}
	return nil
}

// inputSchema returns a schema as the API accepts it: of an object, whatever else it says, with properties.
func inputSchema(schema map[string]any) map[string]any {
	out := map[string]any{"properties": map[string]any{}}
	maps.Copy(out, schema)
	if out["properties"] == nil { // null
		delete(out, "properties")
	}
	out["type"] = "object"
	return out
}

// defineCalledTools defines the tools that were called in a conversation, for a request that offers no tools: the API refuses such
// calls when no tools are defined. The tools cannot be called again.
func defineCalledTools(p *request) {
	seen := map[string]bool{}
	for i := range p.Messages {
		for _, block := range p.Messages[i].Content {
			if block.Type != blockToolUse {
				continue
			}
			name := *block.Name
			if seen[name] {
				continue
			}
			seen[name] = true
			p.Tools = append(p.Tools, tool{
				Name: name, Description: "Was called earlier in this conversation, and cannot be called any more.", InputSchema: inputSchema(nil),
			})
		}
	}
	if len(p.Tools) > 0 {
		p.ToolChoice = &toolChoice{Type: "none"}
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
func turnsOf(ctx context.Context, messages []model.Message, tools []model.Tool, origin wire.Origin) ([]turn, error) {
	var out []turn
	add := func(role string, blocks ...contentBlock) {
		if len(blocks) == 0 {
			return
		}
		n := len(out)
		switch {
		case n == 0 && role == roleAssistant:
			out = append(out, turn{Role: roleUser, Content: []contentBlock{textBlock(opening)}})
		case n == 0 || out[n-1].Role != role:
		case role == roleAssistant: // as the request for the second one read, and so that each answer begins with its thoughts
			out = append(out, turn{Role: roleUser, Content: []contentBlock{textBlock(goOn)}})
		default:
			out[n-1].Content = append(out[n-1].Content, blocks...)
			return
		}
		out = append(out, turn{Role: role, Content: blocks})
	}
	for _, m := range messages {
		switch m.Role {
		case model.RoleAssistant:
			add(roleAssistant, answerBlocks(m, tools, origin)...)
		case model.RoleTool:
			block, err := resultBlock(ctx, m)
			if err != nil {
				return nil, err
			}
			add(roleUser, block)
		default:
			blocks, err := userBlocks(ctx, m)
			if err != nil {
				return nil, err
			}
			add(roleUser, blocks...)
		}
	}
	if n := len(out); n == 0 || out[n-1].Role == roleAssistant {
		add(roleUser, textBlock(goOn))
	}
	marked := 0
	for i := len(out) - 1; i >= 0 && marked < cachedIn; i-- {
		if out[i].Role != roleUser {
			continue
		}
		out[i].Content[len(out[i].Content)-1].CacheControl = cached()
		marked++
	}
	return out, nil
}

// says reports whether a text may be a block. The API refuses blocks of white space only, which other models put before
// their calls, and would then refuse every later request of the conversation.
func says(text string) bool { return strings.TrimSpace(text) != "" }

func userBlocks(ctx context.Context, m model.Message) ([]contentBlock, error) {
	var blocks []contentBlock
	for _, image := range m.Images {
		data, err := image.Base64(ctx)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, imageBlock(image.MimeType, data))
	}
	if text := m.Text(); says(text) {
		blocks = append(blocks, textBlock(text))
	}
	return blocks, nil
}

func resultBlock(ctx context.Context, m model.Message) (contentBlock, error) {
	block := contentBlock{Type: blockToolResult, ToolUseID: ptr.To(validID(m.ToolCallID))}
	if text := m.Text(); says(text) {
		block.Content = append(block.Content, textBlock(text))
	}
	for _, image := range m.Images {
		data, err := image.Base64(ctx)
		if err != nil {
			return contentBlock{}, err
		}
		block.Content = append(block.Content, imageBlock(image.MimeType, data))
	}
	return block, nil
}

// answerBlocks returns an earlier answer, for a request that offers tools and takes thoughts of origin.
func answerBlocks(m model.Message, tools []model.Tool, origin wire.Origin) []contentBlock {
	blocks := thoughts(m, origin)
	if text := m.Text(); says(text) {
		blocks = append(blocks, textBlock(text))
	}
	for _, call := range m.ToolCalls {
		blocks = append(blocks, contentBlock{
			Type: blockToolUse, ID: ptr.To(validID(call.ID)), Input: input(call.Arguments), Name: ptr.To(wire.ToolName(call.Name, tools)),
		})
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
