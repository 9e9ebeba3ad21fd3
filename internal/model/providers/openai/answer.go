package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// maxToolCalls limits the tool calls of one answer. More are considered an error.
const maxToolCalls = 128

// answer collects the chunks of one streamed answer.
type answer struct {
	quiet     bool // leave out the reasoning
	chunks    int
	refused   bool
	content   strings.Builder
	reasoning strings.Builder
	calls     []*call
	byIndex   map[int64]*call // the call that a piece with this index belongs to
	finish    string
	usage     *model.Usage
}

type call struct {
	id, name  string
	arguments strings.Builder
}

func (a *answer) add(chunk sdk.ChatCompletionChunk, emit func(model.Delta)) error {
	a.chunks++
	if chunk.JSON.Usage.Valid() {
		u := chunk.Usage
		a.usage = model.Reported(model.Usage{
			InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
			CachedTokens: u.PromptTokensDetails.CachedTokens, CacheWriteTokens: u.PromptTokensDetails.CacheWriteTokens,
			ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens,
		})
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
		d := choice.Delta
		text := d.Content + d.Refusal
		a.refused = a.refused || d.Refusal != ""
		reasoning := ""
		if !a.quiet {
			reasoning = extraText(d, "reasoning_content", "reasoning")
		}
		a.content.WriteString(text)
		a.reasoning.WriteString(reasoning)
		if text != "" || reasoning != "" {
			emit(model.Delta{Text: text, Reasoning: reasoning})
		}
		for _, piece := range d.ToolCalls {
			if err := a.addCall(piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// addCall adds a piece of a tool call. Pieces with the same index belong together. Some servers send every call with
// index 0 and distinguish calls by a new id.
func (a *answer) addCall(piece sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := a.byIndex[piece.Index]
	if c == nil || (piece.ID != "" && c.id != "" && piece.ID != c.id) {
		if len(a.calls) == maxToolCalls {
			return model.Errorf(model.KindBadAnswer, "the model asked for more than %d tool calls at once", maxToolCalls)
		}
		c = &call{}
		a.calls = append(a.calls, c)
		if a.byIndex == nil {
			a.byIndex = map[int64]*call{}
		}
		a.byIndex[piece.Index] = c
	}
	if c.id == "" {
		c.id = piece.ID
	}
	if c.name == "" { // some servers repeat it with every piece
		c.name = piece.Function.Name
	}
	c.arguments.WriteString(piece.Function.Arguments)
	return nil
}

// response checks that the answer is complete and returns it.
func (a *answer) response(e *wire.Endpoint) (*model.Response, error) {
	endpoint := e.Shown()
	switch {
	case a.chunks == 0:
		return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s answered with something that is not a stream of chat completion chunks: check that spec.endpoint of the Model is the base URL of an OpenAI-compatible API", endpoint)
	case a.finish == "" && a.content.Len() == 0 && len(a.calls) == 0:
		return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s sent an answer without content and without a finish reason", endpoint)
	case a.finish == "":
		return nil, e.Broken()
	case a.finish == finishFiltered:
		return nil, filtered(endpoint)
	}
	r := &model.Response{
		Content: a.content.String(), Reasoning: a.reasoning.String(), FinishReason: a.finish, Usage: a.usage,
		Refused: a.refused,
	}
	for _, c := range a.calls {
		if c.name == "" {
			return nil, model.Errorf(model.KindBadAnswer, "the endpoint %s sent a tool call without a name", endpoint)
		}
		r.ToolCalls = append(r.ToolCalls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return r, nil
}

// finishFiltered is the finish reason of an answer that the provider's content filter cut off.
const finishFiltered = "content_filter"

func filtered(endpoint string) *model.Error {
	e := model.Errorf(model.KindFiltered, "the content filter of the model at %s stopped the answer: the partial answer is discarded; change the request", endpoint)
	e.Code = model.CodeFiltered
	return e
}

// extraText reads a field that is not part of the protocol but that servers of reasoning models send.
func extraText(d sdk.ChatCompletionChunkChoiceDelta, names ...string) string {
	for _, name := range names {
		field, ok := d.JSON.ExtraFields[name]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal([]byte(field.Raw()), &text) == nil && text != "" {
			return text
		}
	}
	return ""
}
