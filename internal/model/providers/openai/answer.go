package openai

import (
	"encoding/json"
	"strings"

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
	byIndex   map[wire.Int]*call // the call that a piece with this index belongs to
	finish    string
	usage     *model.Usage
}

type call struct {
	id, name  string
	arguments strings.Builder
}

func (a *answer) add(chunk chatChunk, emit func(model.Delta)) error {
	a.chunks++
	if u := chunk.Usage.Value; chunk.Usage.Present {
		a.usage = usageOf(u.Prompt, u.Completion, u.PromptDetails.Value, u.Details.Value)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		if choice.FinishReason != "" {
			a.finish = string(choice.FinishReason)
		}
		d := choice.Delta.Value
		text := string(d.Content + d.Refusal)
		a.refused = a.refused || d.Refusal != ""
		reasoning := ""
		if !a.quiet {
			reasoning = firstText(d.ReasoningContent, d.Reasoning)
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
func (a *answer) addCall(piece callPart) error {
	c := a.byIndex[piece.Index]
	if c == nil || (piece.ID != "" && c.id != "" && string(piece.ID) != c.id) {
		if len(a.calls) == maxToolCalls {
			return model.Errorf(model.KindBadAnswer, "the model asked for more than %d tool calls at once", maxToolCalls)
		}
		c = &call{}
		a.calls = append(a.calls, c)
		if a.byIndex == nil {
			a.byIndex = map[wire.Int]*call{}
		}
		a.byIndex[piece.Index] = c
	}
	if c.id == "" {
		c.id = string(piece.ID)
	}
	if c.name == "" { // some servers repeat it with every piece
		c.name = string(piece.Function.Value.Name)
	}
	c.arguments.WriteString(string(piece.Function.Value.Arguments))
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

// usageOf returns a usage that a server reported, with either API.
func usageOf(input, output wire.Int, in inputDetails, out reasoningDetails) *model.Usage {
	return model.Reported(model.Usage{
		InputTokens: int64(input), OutputTokens: int64(output), CachedTokens: int64(in.Cached), CacheWriteTokens: int64(in.CacheWrite),
		ReasoningTokens: int64(out.Reasoning),
	})
}

// firstText returns the first of the fields that is a text, and not an empty one.
func firstText(fields ...json.RawMessage) string {
	for _, field := range fields {
		var text string
		if json.Unmarshal(field, &text) == nil && text != "" {
			return text
		}
	}
	return ""
}
