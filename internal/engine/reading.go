package engine

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

// asking adds to a request what the prompt sets besides the messages, as far as the model supports it: reasoning, a
// response schema and tools.
func asking(req *model.Request, s *definition.Side, tools *tool.Set) {
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

// trimmed records in the log what was left out of the request to fit the model's window, if that has changed.
func (r *run) trimmed(res *model.Response) {
	r.tellTrimmed(trimmedOf(res))
}

// trimmedOf returns what was left out of the request that led to a response.
func trimmedOf(res *model.Response) contextTrimmed {
	out := contextTrimmed{Model: res.Model}
	if t := res.Trimmed; t != nil {
		out.LeftOut, out.Shortened, out.Kept, out.Tokens, out.ContextWindow = t.LeftOut, t.Shortened, t.Kept, t.Tokens, t.ContextWindow
	}
	return out
}

// tellTrimmed adds an event to the next step, if the numbers differ from those of the last request.
func (r *run) tellTrimmed(now contextTrimmed) {
	if now.LeftOut == r.leftOut && now.Shortened == r.shortened {
		return
	}
	r.leftOut, r.shortened = now.LeftOut, now.Shortened
	r.hooks.Record(runlog.Event(r.record.ID, store.EventContextTrimmed, "", now))
}

// withoutReasoning returns an emit function that removes the model's reasoning from a stream.
func withoutReasoning(emit func(model.Delta)) func(model.Delta) {
	return func(d model.Delta) {
		if d.Reasoning = ""; d != (model.Delta{}) {
			emit(d)
		}
	}
}

// read returns the request of the next step, made of the messages that were chosen for it.
func (r *run) read(ctx context.Context, messages []model.Message) (req model.Request, err error) {
	req = model.Request{Messages: messages, Arguments: r.arguments()}
	if req.Messages, err = r.pictured(ctx, req.Messages); err != nil {
		return req, err
	}
	asking(&req, r.side(), r.tools)
	asCalled(req.Messages)
	return req, nil
}

// chosen returns what the current side is to read of the conversation c, which has no summaries.
func (r *run) chosen(c *transcript.Conversation) *transcript.Conversation {
	c = r.withChat(transcript.Select(c, &r.side().Prompt.Spec, r.record.ID))
	if r.frame == nil && r.agent.Dual() {
		c = transcript.WithoutRepairs(c, r.side().Name)
	}
	return c
}

// assembled returns the messages that the model of the current side reads of what was chosen for it.
func (r *run) assembled(system string, c *transcript.Conversation) []model.Message {
	if r.frame != nil {
		return r.voiced(system, c)
	}
	return r.opened(r.voiced(system, transcript.Compacted(c, r.summaryOf(r.conv, r.side()))))
}

// voiced returns messages of the conversation as the model of the current side reads them.
func (r *run) voiced(system string, c *transcript.Conversation) []model.Message {
	other := ""
	if r.frame == nil && r.agent.Dual() {
		other = definition.SpeakerName(r.agent.Other(r.side()))
	}
	return transcript.Assemble(system, c, r.side().Name, other)
}

// redacted returns text without secrets. A hook may have read secrets and written them into a text for the model.
func (r *run) redacted(text string) string {
	return r.engine.opts.Redact(r.thread.Namespace, text)
}
