package request

import (
	"context"
	"regexp"

	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// setPromptOptions adds to a request what the prompt sets besides the messages, as far as the model supports it: reasoning, a
// response schema and tools.
func setPromptOptions(req *model.Request, s *definition.Side, tools *tool.Set) {
	p, can := &s.Prompt.Spec, s.Model.Spec.Capabilities
	if r := p.Reasoning; r != nil && can.Reasons() {
		req.Reasoning = &model.Reasoning{Effort: r.Effort, MaxTokens: ptr.Deref(r.MaxTokens, 0), Exclude: r.Exclude}
	}
	if schema := codeexec.Raw(p.ResponseSchema); len(schema) > 0 {
		if can.TakesSchemas() {
			req.Schema, req.SchemaName = schema, schemaName(s.Prompt.Name)
		} else {
			req.Messages[0].Content += "\n\nAnswer with JSON alone, without any text around it, that fits this JSON Schema:\n" + string(schema)
		}
	}
	choice := model.ToolChoice(p.ToolChoice)
	if choice == model.ToolChoiceNone {
		return
	}
	req.ToolChoice = choice
	for _, d := range tools.Definitions() {
		req.Tools = append(req.Tools, model.Tool{Name: d.Name, Description: d.Description, Parameters: d.Parameters})
	}
	if len(req.Tools) > 0 && can.CallsAtOnce() {
		req.ParallelToolCalls = ptr.To(p.ParallelToolCalls)
	}
}

var notInSchemaName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// schemaName returns the name of a prompt with the characters and the length that providers accept for schemas.
func schemaName(prompt string) string {
	name := notInSchemaName.ReplaceAllString(prompt, "_")
	return name[:min(len(name), 64)]
}

// contextTrimmed is the data of store.EventContextTrimmed.
type contextTrimmed struct {
	LeftOut       int    `json:"leftOut"`
	Shortened     int    `json:"shortened,omitempty"`
	Kept          int    `json:"kept"`
	Tokens        int    `json:"tokens"`
	ContextWindow int64  `json:"contextWindow,omitempty"`
	Model         string `json:"model,omitempty"`
}

// TrimEvents returns the event of what was left out of the request that led to a response, to fit the model's window. There is none
// if the numbers are those of the last request.
func (k *Maker) TrimEvents(runID string, res *model.Response) []store.Op {
	now := trimmedOf(res)
	if now.LeftOut == k.leftOut && now.Shortened == k.shortened {
		return nil
	}
	k.leftOut, k.shortened = now.LeftOut, now.Shortened
	return []store.Op{runlog.Event(runID, store.EventContextTrimmed, "", now)}
}

// trimmedOf returns what was left out of the request that led to a response.
func trimmedOf(res *model.Response) contextTrimmed {
	out := contextTrimmed{Model: res.Model}
	if t := res.Trimmed; t != nil {
		out.LeftOut, out.Shortened, out.Kept, out.Tokens, out.ContextWindow = t.LeftOut, t.Shortened, t.Kept, t.Tokens, t.ContextWindow
	}
	return out
}

// WithoutReasoning returns an emit function that removes the model's reasoning from a stream.
func WithoutReasoning(emit func(model.Delta)) func(model.Delta) {
	return func(d model.Delta) {
		if d.Reasoning = ""; d != (model.Delta{}) {
			emit(d)
		}
	}
}

// Compose returns the request of the next step: the messages that were chosen for it, with the pictures of conv, the conversation of the run,
// and what the prompt and the model set besides, such as the tools.
func (k *Maker) Compose(ctx context.Context, conv *transcript.Conversation, messages []model.Message, tools *tool.Set) (req model.Request, err error) {
	req = model.Request{Messages: messages, Arguments: k.role.Arguments()}
	if req.Messages, err = k.attachPictures(ctx, conv, req.Messages); err != nil {
		return req, err
	}
	setPromptOptions(&req, k.role.Side(), tools)
	restoreCallIDs(req.Messages)
	return req, nil
}

// Choose returns the messages of c that the current side reads, by the rules of its prompt. The hook filter_messages is
// called before, prefilter_llm_history and the model's window are applied after. c must be without summaries.
func (k *Maker) Choose(c *transcript.Conversation, runID string) *transcript.Conversation {
	c = k.role.WithChat(transcript.Select(c, &k.role.Side().Prompt.Spec, runID))
	if k.role.Frame == nil && k.role.Agent.Dual() {
		c = transcript.WithoutRepairs(c, k.role.Side().Name)
	}
	return c
}

// AssembleForStep returns the messages that the model of the current side reads of what was chosen for it. whole is the conversation of
// the run, which has made steps model calls.
func (k *Maker) AssembleForStep(system string, c, whole *transcript.Conversation, steps int) []model.Message {
	if k.role.Frame != nil {
		return k.Assemble(system, c)
	}
	return k.ensureOpening(k.Assemble(system, transcript.ReplaceBySummary(c, k.role.SummaryOf(whole, k.role.Side()))), steps)
}

// Assemble returns messages of the conversation as the model of the current side reads them.
func (k *Maker) Assemble(system string, c *transcript.Conversation) []model.Message {
	other := ""
	if k.role.Frame == nil && k.role.Agent.Dual() {
		other = definition.SpeakerName(k.role.Agent.Other(k.role.Side()))
	}
	return transcript.Assemble(system, c, k.role.Side().Name, other)
}

// Redacted returns text without secrets. A hook may have read secrets and written them into a text for the model.
func (k *Maker) Redacted(text string) string {
	return k.opts.Redact(k.role.Thread.Namespace, text)
}

// ensureOpening ensures that a side whose turn begins has a message to answer. The other side may have ended its turn
// without one.
func (k *Maker) ensureOpening(messages []model.Message, steps int) []model.Message {
	t := k.role.State.Turn
	if !k.role.Agent.Dual() || t.Over == 0 || steps != t.Before || len(messages) == 0 {
		return messages
	}
	if last := messages[len(messages)-1]; last.Role != model.RoleAssistant && last.Role != model.RoleSystem {
		return messages
	}
	return append(messages, model.Message{Role: model.RoleUser, Content: wordless})
}

// wordless is the message that stands for a turn in which nothing was said.
const wordless = "(the turn ended without a message)"
