package anthropic

import (
	"strings"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// maxToolCalls limits the tool calls of one answer. More are considered an error.
const maxToolCalls = 128

// answer collects the events of one streamed message.
type answer struct {
	quiet   bool // leave out the reasoning
	events  int
	blocks  []*block
	byIndex map[wire.Int]*block
	calls   int
	stop    string
	stopped bool // the last event has arrived
	usage   *model.Usage
}

// block is a block of a message.
type block struct {
	kind      string
	id, name  string
	text      strings.Builder // or the input of a call, or the reasoning
	signature string
	redacted  string
}

// add adds an event to the answer, and emits what it adds to the text. It counts the events that it knows: an answer without any is not
// one of this API.
func (a *answer) add(e event, emit func(model.Delta)) error {
	switch e.Type {
	case "message_start":
		a.count(e.Message.Value.Usage.Value)
	case "content_block_start":
		return a.beginBlock(e, emit)
	case "content_block_delta":
		a.extend(e, emit)
	case "message_delta":
		if reason := e.Delta.Value.StopReason; reason != "" {
			a.stop = string(reason)
		}
		// These are totals of the message so far. Older servers send only the output.
		u := e.Usage.Value
		a.count(u)
		a.usage.ReasoningTokens = max(a.usage.ReasoningTokens, min(int64(u.Details.Value.Thinking), model.MaxReported))
	case "message_stop":
		a.stopped = true
	case "content_block_stop":
	default:
		return nil // of another protocol, or newer than this client
	}
	a.events++
	return nil
}

func (a *answer) count(t tokens) {
	if a.usage == nil {
		a.usage = &model.Usage{}
	}
	u := model.Reported(model.Usage{
		InputTokens: int64(t.Input), CachedTokens: int64(t.CacheRead), CacheWriteTokens: int64(t.CacheWrite), OutputTokens: int64(t.Output),
	})
	u.InputTokens += u.CachedTokens + u.CacheWriteTokens // this provider counts them apart
	if u = model.Reported(*u); u.InputTokens > 0 {
		a.usage.InputTokens = max(a.usage.InputTokens, u.InputTokens)
		a.usage.CachedTokens = max(a.usage.CachedTokens, u.CachedTokens)
		a.usage.CacheWriteTokens = max(a.usage.CacheWriteTokens, u.CacheWriteTokens)
	}
	a.usage.OutputTokens = max(a.usage.OutputTokens, u.OutputTokens)
}

// beginBlock adds the block of content that e starts. It returns an error for more tool calls than maxToolCalls.
func (a *answer) beginBlock(e event, emit func(model.Delta)) error {
	start := e.ContentBlock.Value
	b := &block{
		kind: string(start.Type), id: string(start.ID), name: string(start.Name), signature: string(start.Signature), redacted: string(start.Data),
	}
	switch b.kind {
	case blockText:
		b.text.WriteString(string(start.Text))
		if start.Text != "" {
			emit(model.Delta{Text: string(start.Text)})
		}
	case blockThinking:
		b.text.WriteString(string(start.Thinking))
	case blockToolUse:
		if a.calls++; a.calls > maxToolCalls {
			return model.Errorf(model.KindBadAnswer, "the model asked for more than %d tool calls at once", maxToolCalls)
		}
	}
	if a.byIndex == nil {
		a.byIndex = map[wire.Int]*block{}
	}
	a.blocks, a.byIndex[e.Index] = append(a.blocks, b), b
	return nil
}

func (a *answer) extend(e event, emit func(model.Delta)) {
	b := a.byIndex[e.Index]
	if b == nil {
		return
	}
	switch d := e.Delta.Value; d.Type {
	case "text_delta":
		b.text.WriteString(string(d.Text))
		emit(model.Delta{Text: string(d.Text)})
	case "thinking_delta":
		b.text.WriteString(string(d.Thinking))
		if !a.quiet && d.Thinking != "" {
			emit(model.Delta{Reasoning: string(d.Thinking)})
		}
	case "input_json_delta":
		b.text.WriteString(string(d.PartialJSON))
	case "signature_delta":
		b.signature += string(d.Signature)
	}
}

// response checks that the answer is complete and returns it.
func (a *answer) response(e *wire.Endpoint, origin wire.Origin) (*model.Response, error) {
	switch {
	case a.events == 0:
		return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s answered with something that is not a stream of the messages API: check that spec.endpoint of the Model is the base URL of such an API", e.Shown())
	case a.stop == "" || !a.stopped:
		return nil, e.Broken()
	}
	r := &model.Response{FinishReason: finishOf(a.stop), Usage: a.usage, Refused: a.stop == stopRefusal}
	var content, reasoning strings.Builder
	var kept []any
	for _, b := range a.blocks {
		switch b.kind {
		case blockText:
			content.WriteString(b.text.String())
		case blockThinking:
			reasoning.WriteString(b.text.String())
			kept = append(kept, map[string]any{"signature": b.signature, "thinking": b.text.String()})
		case blockRedactedThinking:
			kept = append(kept, map[string]any{"redacted": b.redacted})
		case blockToolUse:
			if b.name == "" {
				return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s sent a tool call without a name", e.Shown())
			}
			arguments := b.text.String()
			if arguments == "" {
				arguments = "{}" // for a tool without parameters, no piece of input arrives
			}
			r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: b.id, Name: b.name, Arguments: arguments})
		}
	}
	r.Content = content.String()
	if r.Refused {
		r.ToolCalls, kept = nil, nil // discard what was begun
		if r.Content == "" {
			r.Content = "(the model declined to answer)"
		}
	}
	if !a.quiet {
		r.Reasoning = reasoning.String()
	}
	if len(kept) > 0 && len(r.ToolCalls) > 0 { // the provider wants it back only together with the results of calls
		r.Metadata = origin.Metadata(model.MetadataThinking, kept)
	}
	return r, nil
}

// finishOf translates a stop reason to the common terms of all providers.
func finishOf(reason string) string {
	switch reason {
	case stopEndTurn, stopSequence, stopPauseTurn:
		return "stop"
	case stopToolUse:
		return "tool_calls"
	case stopMaxTokens, stopContextWindow:
		return "length"
	}
	return reason
}
