package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/window"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// chosen leaves out of a conversation what the prompt does not want its model to read (SPEC AGT-05): all that was
// before the present turn, or the tool calls of it.
func chosen(c *conversation, p *skeinv1.PromptSpec, runID string) *conversation {
	chat, past := ptr.Deref(p.IncludeChat, true), ptr.Deref(p.IncludePastTools, true)
	if chat && past {
		return c
	}
	begin := presentTurn(c, runID)
	out := newConversation()
	for i := range c.msgs {
		m := c.msgs[i]
		if i < begin {
			if !chat || !past && m.Role == store.RoleTool {
				continue
			}
			if !past && len(m.ToolCalls) > 0 {
				if m.ToolCalls = nil; contentOf(&m) == "" && len(m.Attachments) == 0 {
					continue
				}
			}
		}
		out.msgs = append(out.msgs, m)
		out.index(len(out.msgs) - 1)
	}
	return out
}

// presentTurn gives the index of the first message of a run, or of what was put right before it while no run was under
// way. Without a message of the run it is the newest of a user.
func presentTurn(c *conversation, runID string) int {
	begin := len(c.msgs)
	for i := range c.msgs {
		if c.msgs[i].RunID == runID {
			begin = i
			break
		}
	}
	if begin == len(c.msgs) {
		for begin > 0 && c.msgs[begin-1].Role != store.RoleUser {
			begin--
		}
		begin = max(begin-1, 0)
	}
	for begin > 0 && c.msgs[begin-1].RunID == "" {
		begin--
	}
	return begin
}

// asking fills in what the prompt asks of the model beside the messages, as far as the model knows of it.
func asking(req *model.Request, s *Side, tools *tool.Set) {
	p, can := &s.Prompt.Spec, s.Model.Spec.Capabilities
	if r := p.Reasoning; r != nil && can.Reasons() {
		req.Reasoning = &model.Reasoning{Effort: r.Effort, MaxTokens: ptr.Deref(r.MaxTokens, 0), Exclude: r.Exclude}
	}
	if schema := raw(p.ResponseSchema); len(schema) > 0 {
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

func schemaName(prompt string) string {
	name := notInSchemaName.ReplaceAllString(prompt, "_")
	return name[:min(len(name), 64)]
}

// contextTrimmed is the data of store.EventContextTrimmed.
type contextTrimmed struct {
	LeftOut       int   `json:"leftOut"`
	Kept          int   `json:"kept"`
	Tokens        int   `json:"tokens"`
	ContextWindow int64 `json:"contextWindow"`
}

// fitting keeps a request within the window of the side's model, where that is known: the oldest turns are left out,
// which the log says, and what cannot be left out fails the turn. It gives the request's size as it was estimated.
func (r *run) fitting(req *model.Request) (estimated int, err error) {
	m := &r.side().Model
	size := m.Spec.Capabilities
	if size == nil || size.ContextWindow == 0 {
		return 0, nil
	}
	factor := r.engine.scaleOf(m).Factor()
	beside := window.Tools(req.Tools) + window.Text(string(req.Schema))
	room := int(float64(size.ContextWindow-answerRoom(&m.Spec))/factor) - beside
	f := window.Fit(req.Messages, room, window.Message)
	if !f.Fits {
		return 0, failf(ReasonContextTooLarge, "the prompt %s and the newest turn have about %d tokens, more than the %d that the model %s reads beside its answer: "+
			"say less at once, keep large data in files, let tools give shorter results, offer fewer tools, or use a model with a larger window (spec.capabilities.contextWindow)",
			r.side().Prompt.Name, int(float64(f.Tokens+beside)*factor), size.ContextWindow-answerRoom(&m.Spec), m.Name)
	}
	req.Messages = f.Messages
	if f.LeftOut != r.leftOut {
		r.leftOut = f.LeftOut
		r.hooks.with = append(r.hooks.with, eventOp(r.record.ID, store.EventContextTrimmed, "", contextTrimmed{
			LeftOut: f.LeftOut, Kept: len(f.Messages) - 1, Tokens: int(float64(f.Tokens+beside) * factor), ContextWindow: size.ContextWindow,
		}))
	}
	return f.Tokens + beside, nil
}

// answerRoom is how many tokens of the window are kept free for the answer: what it may have at most, but no more than
// half of the window.
func answerRoom(m *skeinv1.ModelSpec) int64 {
	half := m.Capabilities.ContextWindow / 2
	switch {
	case m.Options != nil && m.Options.MaxTokens != nil:
		return min(int64(*m.Options.MaxTokens), half)
	case m.Capabilities.MaxOutputTokens > 0:
		return min(m.Capabilities.MaxOutputTokens, half)
	}
	return min(4096, half/2)
}

// maxScales bounds of how many models it is remembered how their tokens are counted.
const maxScales = 1024

// scaleOf gives what is known of how a model counts.
func (e *Engine) scaleOf(m *Model) *window.Scale {
	key := fmt.Sprintf("%s\x00%s\x00%s", m.Spec.Provider, m.Spec.Endpoint, m.Spec.Model)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.scales.Get(key); ok {
		return s.(*window.Scale)
	}
	s := &window.Scale{}
	e.scales.Add(key, s)
	return s
}

// learn takes in what the provider counted.
func (r *run) learn(estimated int, res *model.Response) {
	if estimated > 0 && res.Usage != nil && res.Model == "" && res.Session == "" {
		r.engine.scaleOf(&r.side().Model).Learn(estimated, res.Usage.InputTokens)
	}
}

// withoutReasoning keeps from a stream what the model thinks.
func withoutReasoning(emit func(model.Delta)) func(model.Delta) {
	return func(d model.Delta) {
		if d.Reasoning = ""; d != (model.Delta{}) {
			emit(d)
		}
	}
}

// read makes the request of the next step out of the messages that were chosen for it.
func (r *run) read(ctx context.Context, messages []model.Message) (req model.Request, estimated int, err error) {
	req = model.Request{Messages: messages, Arguments: r.arguments()}
	if req.Messages, err = r.pictured(ctx, req.Messages); err != nil {
		return req, 0, err
	}
	asking(&req, r.side(), r.tools)
	estimated, err = r.fitting(&req)
	if slices.ContainsFunc(req.Messages, func(m model.Message) bool { return len(m.Images) > 0 }) {
		estimated = 0 // images cost what they cost: nothing is to be learned from them
	}
	return req, estimated, err
}
