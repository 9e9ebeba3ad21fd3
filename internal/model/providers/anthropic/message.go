package anthropic

import "encoding/json"

// request is the body of a request to the messages API, as far as Skein uses it. Pointers are for fields of which an empty value differs
// from an absent one.
type request struct {
	Model        string         `json:"model"`
	MaxTokens    int64          `json:"max_tokens"`
	System       []contentBlock `json:"system,omitempty"`
	Messages     []turn         `json:"messages"`
	Stream       bool           `json:"stream"`
	Temperature  *float64       `json:"temperature,omitempty"`
	TopP         *float64       `json:"top_p,omitempty"`
	Thinking     *thinking      `json:"thinking,omitempty"`
	OutputConfig *outputConfig  `json:"output_config,omitempty"`
	Tools        []tool         `json:"tools,omitempty"`
	ToolChoice   *toolChoice    `json:"tool_choice,omitempty"`
}

// The roles of turns.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// turn is all that the user, or the assistant, says before the other one does.
type turn struct {
	Role    string         `json:"role"`
	Content []contentBlock `json:"content"`
}

// The types of blocks.
const (
	blockText             = "text"
	blockImage            = "image"
	blockThinking         = "thinking"
	blockRedactedThinking = "redacted_thinking"
	blockToolUse          = "tool_use"
	blockToolResult       = "tool_result"
)

// contentBlock is a block of a turn. Its type says which of the other fields it has.
type contentBlock struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`        // of a text, which is never empty
	Source       *source         `json:"source,omitempty"`      // of an image
	Thinking     *string         `json:"thinking,omitempty"`    // of thinking
	Signature    string          `json:"signature,omitempty"`   // of thinking
	Data         string          `json:"data,omitempty"`        // of thinking that the provider has hidden
	ID           *string         `json:"id,omitempty"`          // of a call
	Name         *string         `json:"name,omitempty"`        // of a call
	Input        json.RawMessage `json:"input,omitempty"`       // of a call
	ToolUseID    *string         `json:"tool_use_id,omitempty"` // of a result
	Content      []contentBlock  `json:"content,omitempty"`     // of a result
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

func textBlock(text string) contentBlock { return contentBlock{Type: blockText, Text: text} }

func imageBlock(mimeType, data string) contentBlock {
	return contentBlock{Type: blockImage, Source: &source{Type: "base64", MediaType: mimeType, Data: data}}
}

// source is where an image comes from: the request itself.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// cacheControl marks the end of what the provider is to cache.
type cacheControl struct {
	Type string `json:"type"`
}

func cached() *cacheControl { return &cacheControl{Type: "ephemeral"} }

// thinking says whether the model thinks before it answers, and how much.
type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int64  `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

// outputConfig is how much the model does for an answer, and which form the answer has.
type outputConfig struct {
	Effort string  `json:"effort,omitempty"`
	Format *format `json:"format,omitempty"`
}

type format struct {
	Type   string         `json:"type"`
	Schema map[string]any `json:"schema"`
}

// tool is a tool that the model may call.
type tool struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitempty"`
	InputSchema  map[string]any `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type                   string `json:"type"`
	DisableParallelToolUse bool   `json:"disable_parallel_tool_use,omitempty"`
}
