package run

import (
	"cmp"
	"context"
	"errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/request"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// ask makes one step: a model call, whose answer goes into the log. ended reports that the answer was the last of the
// session, and that the end of the run is in the log with it.
func (r *run) ask(ctx context.Context) (ended bool, err error) {
	r.current = false
	if limit := r.MaxSteps(); r.record.Steps-r.State.Turn.Before >= limit {
		return false, failure.New(skeinv1.ReasonMaxStepsReached, "the turn made %d model calls, which is its limit (maxSteps), without coming to an end", limit)
	}
	if err := r.limits.Check(r.record.Steps, &r.usage); err != nil {
		return false, err
	}
	if err := r.service.opts.Quotas.Refuse(ctx, r.Thread.Namespace); err != nil {
		return false, err
	}
	if r.Side().Handler != nil {
		return r.askHandler(ctx)
	}
	if err := r.code.BuildTools(ctx); err != nil {
		return false, err
	}
	m := &r.Side().Model
	client, err := r.requests.Client(m)
	if err != nil {
		return false, failure.OfModel(ctx, err)
	}
	req, err := r.request(ctx)
	if err != nil {
		return false, err
	}
	r.requests.Continue(&req, m, r.conv)
	id := runlog.NewMessageID()
	pieces := deltas.New(ctx, r.streams, id, r.known)
	emit, exclude := pieces.Emit, req.Reasoning != nil && req.Reasoning.Exclude
	if exclude {
		emit = request.WithoutReasoning(emit)
	}
	r.service.fault("model.before")
	if r.Frame != nil {
		emit = func(model.Delta) {} // viewers of the conversation see the caller, not a called prompt
	}
	answering, over := membudget.Part(ctx) // the answer is part of the conversation afterwards
	defer over()
	if r.Frame == nil { // a called prompt waits for its turn, since other calls may be under way beside it
		req.Deferral = r.service.opts.Queue.ExpectResume(r.Thread.ID) // the model may defer the call (see package schedule)
	}
	call, done := r.WhileWanted(answering)
	res, err := client.Stream(call, req, emit)
	done()
	var lost error
	if r.known, lost = pieces.Stop(); lost != nil {
		return false, lost
	}
	if errors.Is(err, model.ErrDeferred) {
		return false, r.giveWorkerBack(ctx, req.Deferral)
	}
	if err != nil {
		return false, failure.OfModel(ctx, err)
	}
	r.service.fault("model.after")
	if res.Model != "" {
		r.log.Info("a fallback model answered", "run", r.record.ID, "model", m.Name, "answered", res.Model, "failures", res.Failures)
	}
	res.Metadata = r.requests.AnswerMetadata(&req, m, res)
	r.hooks.Record(r.requests.TrimEvents(r.record.ID, res)...)
	if exclude {
		res.Reasoning = ""
	}
	return r.recordAnswer(ctx, id, res)
}

// request returns what the model is to read. It sums up older messages first when there are too many of them.
func (r *run) request(ctx context.Context) (req model.Request, err error) {
	conv, err := r.hooks.FilterMessages(ctx, transcript.WithoutSummaries(r.conv), r.record.Steps)
	if err != nil {
		return req, err
	}
	conv = r.requests.Choose(conv, r.record.ID)
	system, err := r.requests.System(ctx, r.record.ID)
	if err != nil {
		return req, err
	}
	for n := 0; ; n++ {
		if n > 0 { // the summary before may have used up the day's tokens
			if err := r.service.opts.Quotas.Refuse(ctx, r.Thread.Namespace); err != nil {
				return req, err
			}
		}
		messages, err := r.hooks.PrefilterHistory(ctx, r.requests.AssembleForStep(system, conv, r.conv, r.record.Steps), r.record.Steps)
		if err != nil {
			return req, err
		}
		// The first code of the run may have been a hook. Then the execution exists only now, and tools are built with
		// it.
		if err := r.code.BuildTools(ctx); err != nil {
			return req, err
		}
		if req, err = r.requests.Compose(ctx, r.conv, messages, r.code.Tools); err != nil || n == compaction.Most {
			return req, err
		}
		if more, err := r.compactor.Compact(ctx, conv, req); err != nil || !more {
			return req, err
		}
		conv = transcript.WithoutSummaries(conv) // it may be the conversation of the run, which has one more now
	}
}

// recordAnswer puts an answer into the log. When it is the last one, the end of the turn or of the run goes with it,
// else the start of its first call.
func (r *run) recordAnswer(ctx context.Context, id string, res *model.Response) (ended bool, err error) {
	m := r.requests.Answer(id, r.record.ID, res, r.service.now())
	if res.Usage != nil {
		r.usage.Count(res.Usage)
		r.service.opts.Quotas.CountUsed(r.Thread.Namespace, res.Usage.Tokens(), int64(res.Usage.Cost))
	}
	if r.Side().Handler == nil { // a handler asks any number of models, and counts them itself
		r.usage.CountModel(cmp.Or(res.Model, r.Side().Model.Name))
	}
	r.record.Usage = r.usage.Encode()
	r.Place(m)
	if err := r.hooks.BeforeCreate(ctx, m); err != nil {
		return false, err
	}
	_ = r.code.TakeDecisions() // what hooks have requested; it reaches the log with the row of the run
	r.record.Steps++
	if r.State.Turn.Side == definition.SideB {
		r.State.Turn.StepsB++
		r.record.State = r.State.Encode()
	}
	r.countTime()
	if len(m.ToolCalls) == 0 {
		if end := plan.EndOf(r.conv, m, r.Side().Spec); end != nil {
			if wrong := r.requests.MisfitReason(m); wrong != "" && !res.Refused {
				return false, r.recordMisfit(ctx, m, wrong)
			}
			if r.Frame == nil { // the answer of a called prompt is an ordinary message
				end.Text = transcript.ContentOf(m)
				return r.endTurn(ctx, end, m)
			}
		}
	}
	tx := r.newTransaction("answer")
	tx.clear()
	tx.createMessage(ctx, m)
	tx.putRun(r.record)
	for i, call := range m.ToolCalls {
		if (i == 0 || r.Parallel()) && !r.code.AsksFirst(call) {
			tx.add(runlog.Event(r.record.ID, store.EventToolStarted, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID}))
		}
	}
	tx.saveScopes(false) // changes by a handler; those by a tool are saved with its result
	return false, tx.commit(ctx)
}

// recordMisfit puts an answer that does not fit its schema into the log, with the message that tells the model so. It
// returns a *failure.Error when the model was told before.
func (r *run) recordMisfit(ctx context.Context, m *store.Message, wrong string) error {
	correction, failed := r.requests.Repair(m, wrong, r.record.ID, r.service.now())
	if failed == nil {
		r.record.State = r.State.Encode()
	}
	tx := r.newTransaction("answer")
	tx.clear()
	tx.createMessage(ctx, m)
	tx.putRun(r.record)
	if correction != nil {
		r.Place(correction)
		tx.appendMessage(correction)
	}
	if err := tx.commit(ctx); err != nil {
		return err
	}
	return failed
}

// giveWorkerBack commits what is only in memory, and ends this replica's part of the run so that its worker is free. All others
// still see the run as under way. The error is model.ErrDeferred after success. Any other error says why nothing was written.
func (r *run) giveWorkerBack(ctx context.Context, deferral *model.Deferral) error {
	if r.code.Exec != nil {
		r.code.SnapshotContext(ctx)
		r.countTime()
		r.record.State = r.State.Encode()
		if err := r.newTransaction("park").save(ctx); err != nil {
			return err
		}
	}
	r.service.opts.Queue.WaitForModel(deferral)
	return model.ErrDeferred
}
