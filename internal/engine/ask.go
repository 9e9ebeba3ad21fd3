package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// ask makes one step: a model call, whose answer goes into the log. ended tells that the answer was the
// last of the session, and that the run's end is in the log with it.
func (r *run) ask(ctx context.Context) (ended bool, err error) {
	r.current = false
	if limit := r.maxSteps(); r.record.Steps-r.checkpoint.Turn.Before >= limit {
		return false, failf(ReasonMaxStepsReached, "the turn made %d model calls, which is its limit (maxSteps), without coming to an end", limit)
	}
	if err := r.overLimit(); err != nil {
		return false, err
	}
	if r.side().Handler != nil {
		return r.askHandler(ctx)
	}
	if err := r.buildTools(ctx); err != nil {
		return false, err
	}
	m := &r.side().Model
	client, err := r.client(m)
	if err != nil {
		return false, modelFailure(ctx, err)
	}
	req, err := r.request(ctx)
	if err != nil {
		return false, err
	}
	r.goOnWith(&req, m)
	id := newMessageID()
	deltas := newDeltas(ctx, r, id)
	emit, exclude := deltas.emit, req.Reasoning != nil && req.Reasoning.Exclude
	if exclude {
		emit = withoutReasoning(emit)
	}
	r.engine.fault("model.before")
	if r.frame != nil {
		emit = func(model.Delta) {} // who follows the conversation follows the caller
	}
	call, later := r.allowBackpressure(ctx)
	call, done := r.whileWanted(call)
	res, err := client.Stream(call, req, emit)
	done()
	if lost := deltas.stop(); lost != nil {
		return false, lost
	}
	if errors.Is(err, model.ErrLater) {
		return false, r.giveWorkerBack(ctx, later)
	}
	if err != nil {
		return false, modelFailure(ctx, err)
	}
	r.engine.fault("model.after")
	if res.Model != "" {
		r.log.Info("a fallback answered", "run", r.record.ID, "model", m.Name, "answered", res.Model, "failures", res.Failures)
	}
	res.Metadata = r.noted(&req, m, res)
	r.trimmed(res)
	if exclude {
		res.Reasoning = ""
	}
	return r.recordAnswer(ctx, id, res)
}

// client speaks with a model of the agent.
func (r *run) client(m *definition.Model) (model.Client, error) {
	return r.engine.opts.Models.Client(m.Config(r.agent.Namespace))
}

// request is what the model is to read, as far as its window has room for it.
func (r *run) request(ctx context.Context) (req model.Request, err error) {
	conv, err := r.filtered(ctx)
	if err != nil {
		return req, err
	}
	system, err := r.system(ctx)
	if err != nil {
		return req, err
	}
	messages, err := r.prefiltered(ctx, r.assembled(system, r.withChat(transcript.Select(conv, &r.side().Prompt.Spec, r.record.ID))))
	if err != nil {
		return req, err
	}
	// A hook that was the first code of the run has made its execution, which tools are made with.
	if err := r.buildTools(ctx); err != nil {
		return req, err
	}
	return r.read(ctx, messages)
}

// recordAnswer puts an answer into the log: with the end of the turn, or of the run, when it is the last of it, else with
// the start of its first call.
func (r *run) recordAnswer(ctx context.Context, id string, res *model.Response) (ended bool, err error) {
	m := r.answer(id, res)
	r.place(m)
	if err := r.beforeCreate(ctx, m); err != nil {
		return false, err
	}
	r.takeDecisions()
	r.record.Steps++
	if r.checkpoint.Turn.Side == definition.SideB {
		r.checkpoint.Turn.StepsB++
		r.record.State = r.checkpoint.Encode()
	}
	r.countTime()
	if len(m.ToolCalls) == 0 {
		if end := plan.EndOf(r.conv, m, r.side().Spec); end != nil {
			if wrong := r.misfit(m); wrong != "" && !res.Refused {
				return false, r.recordMisfit(ctx, m, wrong)
			}
			if r.frame == nil { // the answer of a called prompt is a message like others
				end.Text = transcript.ContentOf(m)
				return r.endTurn(ctx, end, m)
			}
		}
	}
	s := r.newStep("answer")
	s.clear()
	s.createMessage(ctx, m)
	s.checkpoint(r.record)
	for i, call := range m.ToolCalls {
		if (i == 0 || r.parallel()) && !r.asksFirst(call) {
			s.add(eventOp(r.record.ID, store.EventToolStarted, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID}))
		}
	}
	s.saveScopes(false) // of a handler; what a tool did is there with its result
	return false, s.commit(ctx)
}

// recordMisfit puts an answer into the log that does not fit its schema, with what the model is told about it. A
// *failure when it was told before.
func (r *run) recordMisfit(ctx context.Context, m *store.Message, wrong string) error {
	told, failed := r.repair(m, wrong)
	s := r.newStep("answer")
	s.clear()
	s.createMessage(ctx, m)
	s.checkpoint(r.record)
	if told != nil {
		r.place(told)
		s.appendMessage(told)
	}
	if err := s.commit(ctx); err != nil {
		return err
	}
	return failed
}

// answer makes the message of a response.
func (r *run) answer(id string, res *model.Response) *store.Message {
	m := &store.Message{
		ID: id, Role: store.RoleAssistant, CreatedAt: r.engine.now(), Status: store.MessageCompleted, RunID: r.record.ID,
		Metadata: res.Metadata, ReasoningContent: res.Reasoning, Side: r.mark(),
	}
	if content := strings.ToValidUTF8(res.Content, "\uFFFD"); content != "" || len(res.ToolCalls) == 0 {
		m.Content = &content
	}
	recordCalls(m, res.ToolCalls)
	if res.Usage != nil {
		m.Usage, _ = json.Marshal(res.Usage) // numbers only: cannot fail
		r.usage.Usage = r.usage.Add(*res.Usage)
	}
	if r.side().Handler == nil { // which asks any number of them
		r.countModel(cmp.Or(res.Model, r.side().Model.Name))
	}
	r.record.Usage, _ = json.Marshal(r.usage) // numbers and names only: cannot fail
	return m
}

// countModel notes that a Model has answered in this run.
func (r *run) countModel(name string) {
	if !slices.Contains(r.usage.Models, name) {
		r.usage.Models = append(r.usage.Models, name)
		slices.Sort(r.usage.Models)
	}
}

// runUsage is Run.Usage: what the model calls of a run used, and by which Models.
type runUsage struct {
	model.Usage
	Models []string `json:"models,omitempty"`
}

func (r *run) parallel() bool { return r.side().Prompt.Spec.ParallelToolCalls }
