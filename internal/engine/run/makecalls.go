package run

import (
	"context"
	"maps"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/calls"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// makeCalls makes tool calls in the given order, or concurrently where the prompt allows it, and records each result.
// The results keep the order of the calls (TOL-02).
func (r *run) makeCalls(ctx context.Context, made []store.ToolCall) error {
	prompts := promptCalls{r}
	r.current = false
	if caller := r.conv.SideOf(made[0].ID); caller != "" && r.Frame == nil {
		defer r.code.ActAs(r.Agent.Side(caller))()
	}
	if err := r.code.BuildTools(ctx); err != nil {
		return err
	}
	made, err := r.approvals(ctx, made)
	if len(made) == 0 || err != nil {
		return err
	}
	set, err := r.code.Offer(ctx, r.conv, made)
	if err != nil {
		return err
	}
	r.code.BeginTurn(r.conv)
	broker, closeBroker := r.code.OpenBroker()
	defer closeBroker()
	how := calls.Step{
		Set: set, Decided: maps.Clone(r.State.Decisions), Repeat: r.resumed, Broker: broker, Thread: r.Thread, Env: r.service.opts.Env, Clock: r.service.opts.Clock,
		Log: r.log, Causation: r.hooks.Causation, ForCode: prompts.callForCode, Fault: r.service.opts.Fault,
	}
	r.resumed = false // calls after these are new
	if r.Frame != nil {
		how.Code = r.Frame.Code
	}
	if !r.Parallel() || len(made) == 1 {
		for i, call := range made {
			if err := r.checkInterrupted(); err != nil {
				return err
			}
			var next *store.ToolCall
			if i+1 < len(made) {
				next = &made[i+1]
			}
			o, err := how.CallAndServe(ctx, call)
			if err != nil {
				return err
			}
			if o, err = prompts.execute(ctx, call, o, how.Repeat); err != nil {
				return err
			}
			if err := r.recordResult(ctx, call, o, next); err != nil {
				return err
			}
			if w, waits := r.State.Waits[call.ID]; waits && w.Kind != tool.WaitChild {
				return nil // the next calls are made after this one
			}
		}
		return nil
	}
	return how.Concurrently(ctx, made, r.service.opts.Limits.ParallelCalls, func(call store.ToolCall, o calls.Outcome) (calls.Outcome, error) {
		return prompts.execute(ctx, call, o, how.Repeat)
	}, func(call store.ToolCall, o calls.Outcome) error { return r.recordResult(ctx, call, o, nil) })
}

// recordResult puts a result into the log, together with the start of the next call.
func (r *run) recordResult(ctx context.Context, call store.ToolCall, o calls.Outcome, next *store.ToolCall) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.Panicked:
		return failure.New(skeinv1.ReasonInternalError, "internal error in the tool %s: see the manager's log for run %s", call.Name, r.record.ID)
	case o.Result.Wait != nil:
		r.State.AddWait(call.ID, *o.Result.Wait, r.CallID(), r.service.now())
		return nil
	case o.Result.Handoff != "" && r.IsHanded():
		o.Result = tool.Failure("the conversation passes to the agent " + r.Next + " already")
	}
	content := r.service.opts.Redact(r.Thread.Namespace, o.Result.Content)
	m := &store.Message{
		ID: runlog.NewMessageID(), Role: store.RoleTool, CreatedAt: r.service.now(), Status: store.MessageCompleted, RunID: r.record.ID,
		Name: call.Name, ToolCallID: call.ID, ToolStatus: string(o.Result.Status), Content: &content, Attachments: o.Result.Attachments,
		Side: r.Mark(),
	}
	r.Place(m)
	waited := r.State.RemoveWait(call.ID)
	changed := r.State.MarkDecision(call, m) || waited
	if err := r.hooks.BeforeResult(ctx, call, m); err != nil {
		return err
	}
	content = clip.Result(r.requests.Redacted(transcript.ContentOf(m)), r.service.opts.Limits.ToolResultBytes) // a hook may have added secrets
	m.Content = &content
	r.hooks.AfterResult(ctx, call, m)
	tx := r.newTransaction("result")
	tx.appendMessage(m)
	tx.add(runlog.Event(r.record.ID, store.EventToolEnded, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID, Status: m.ToolStatus, DurationMs: o.Duration}))
	if next != nil {
		tx.add(runlog.Event(r.record.ID, store.EventToolStarted, "", toolEvent{Name: next.Name, ToolCallID: next.ID}))
	}
	if changed = r.code.TakeDecisions() || changed; changed {
		r.record.State = r.State.Encode()
		tx.putRun(r.record)
	}
	if o.Result.Handoff != "" {
		tx.add(codeexec.HandoffOp(o.Result.Handoff, r.record.ID, call.ID))
	}
	tx.saveScopes(false)
	if err := tx.commit(ctx); err != nil {
		return err
	}
	if o.Result.Handoff != "" {
		r.Next = o.Result.Handoff
	}
	return nil
}
