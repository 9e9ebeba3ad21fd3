package anthropic

import "github.com/skein-dev/skein/internal/model/providers/wire"

// event is an event of a streamed message, as far as Skein reads it. Its type says which of the other fields it has.
type event struct {
	Type         wire.Text               `json:"type"`
	Index        wire.Int                `json:"index"`
	Message      wire.Object[message]    `json:"message"`
	ContentBlock wire.Object[blockStart] `json:"content_block"`
	Delta        wire.Object[delta]      `json:"delta"`
	Usage        wire.Object[tokens]     `json:"usage"`
}

// message is the message as it begins.
type message struct {
	Usage wire.Object[tokens] `json:"usage"`
}

// blockStart is a block as it begins.
type blockStart struct {
	Type      wire.Text `json:"type"`
	Text      wire.Text `json:"text"`
	Thinking  wire.Text `json:"thinking"`
	Signature wire.Text `json:"signature"`
	Data      wire.Text `json:"data"`
	ID        wire.Text `json:"id"`
	Name      wire.Text `json:"name"`
}

// delta is what is added to a block, or to the message.
type delta struct {
	Type        wire.Text `json:"type"`
	Text        wire.Text `json:"text"`
	Thinking    wire.Text `json:"thinking"`
	PartialJSON wire.Text `json:"partial_json"`
	Signature   wire.Text `json:"signature"`
	StopReason  wire.Text `json:"stop_reason"`
}

// tokens is the usage of a message so far.
type tokens struct {
	Input      wire.Int `json:"input_tokens"`
	CacheRead  wire.Int `json:"cache_read_input_tokens"`
	CacheWrite wire.Int `json:"cache_creation_input_tokens"`
	Output     wire.Int `json:"output_tokens"`
	Details    wire.Object[struct {
		Thinking wire.Int `json:"thinking_tokens"`
	}] `json:"output_tokens_details"`
}

// The reasons why an answer ends, as far as Skein distinguishes them.
const (
	stopEndTurn       = "end_turn"
	stopSequence      = "stop_sequence"
	stopPauseTurn     = "pause_turn"
	stopToolUse       = "tool_use"
	stopMaxTokens     = "max_tokens"
	stopContextWindow = "model_context_window_exceeded"
	stopRefusal       = "refusal"
)
