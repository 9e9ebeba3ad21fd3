package openai

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// chatChunk is a piece of a streamed chat completion, as far as Skein reads it.
type chatChunk struct {
	Choices wire.List[chatChoice]  `json:"choices"`
	Usage   wire.Object[chatUsage] `json:"usage"`
}

// chatChoice is a piece of one of the answers.
type chatChoice struct {
	Index        wire.Int               `json:"index"`
	Delta        wire.Object[chatDelta] `json:"delta"`
	FinishReason wire.Text              `json:"finish_reason"`
}

// chatDelta is what is added to an answer.
type chatDelta struct {
	Content   wire.Text           `json:"content"`
	Refusal   wire.Text           `json:"refusal"`
	ToolCalls wire.List[callPart] `json:"tool_calls"`
	// Servers of reasoning models send these, which are not part of the protocol. What is not a text is something else.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
}

// callPart is a piece of a tool call.
type callPart struct {
	Index    wire.Int  `json:"index"`
	ID       wire.Text `json:"id"`
	Function wire.Object[struct {
		Name      wire.Text `json:"name"`
		Arguments wire.Text `json:"arguments"`
	}] `json:"function"`
}

// chatUsage is the usage of a call in tokens.
type chatUsage struct {
	Prompt        wire.Int                      `json:"prompt_tokens"`
	Completion    wire.Int                      `json:"completion_tokens"`
	PromptDetails wire.Object[inputDetails]     `json:"prompt_tokens_details"`
	Details       wire.Object[reasoningDetails] `json:"completion_tokens_details"`
}

// inputDetails and reasoningDetails are the same in both APIs.
type inputDetails struct {
	Cached     wire.Int `json:"cached_tokens"`
	CacheWrite wire.Int `json:"cache_write_tokens"`
}

type reasoningDetails struct {
	Reasoning wire.Int `json:"reasoning_tokens"`
}
