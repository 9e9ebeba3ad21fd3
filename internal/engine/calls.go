package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// making holds what the calls of a step have in common: the tools, the decisions on calls that needed approval, and
// whether a crash may have interrupted the calls before.
type making struct {
	set     *tool.Set
	decided map[string]store.Approval
	repeat  bool
	// broker is where the code of these calls asks for prompts; nil when it cannot. code holds the contexts of code
	// that waits for the calls and cannot be parked.
	broker *codeexec.Broker
	code   []context.Context
}

// makeCalls makes tool calls in the given order, or concurrently where the prompt allows it, and records each result.
// The results keep the order of the calls (TOL-02).
func (r *run) makeCalls(ctx context.Context, calls []store.ToolCall) error {
	r.current = false
	if caller := r.conv.SideOf(calls[0].ID); caller != "" && r.Frame == nil {
		defer r.actAs(r.Agent.Side(caller))()
	}
	if err := r.code.BuildTools(ctx); err != nil {
		return err
	}
	calls, err := r.approvals(ctx, calls)
	if len(calls) == 0 || err != nil {
		return err
	}
	set, err := r.offer(ctx, calls)
	if err != nil {
		return err
	}
	r.code.BeginTurn(r.conv)
	how := making{set: set, decided: maps.Clone(r.Checkpoint.Decisions), repeat: r.resumed}
	r.resumed = false // calls after these are new
	if r.Frame != nil {
		how.code = r.Frame.Code
	}
	broker, closeBroker := r.openBroker()
	defer closeBroker()
	how.broker = broker
	if !r.Parallel() || len(calls) == 1 {
		for i, call := range calls {
			if err := r.interrupted(); err != nil {
				return err
			}
			var next *store.ToolCall
			if i+1 < len(calls) {
				next = &calls[i+1]
			}
			o, err := r.callServing(ctx, how, call)
			if err != nil {
				return err
			}
			if o, err = r.prompted(ctx, call, o, how.repeat); err != nil {
				return err
			}
			if err := r.recordResult(ctx, call, o, next); err != nil {
				return err
			}
			if w, waits := r.Checkpoint.Waits[call.ID]; waits && w.Kind != tool.WaitChild {
				return nil // the next calls are made after this one
			}
		}
		return nil
	}
	return r.callAtOnce(ctx, how, calls)
}

// offer returns the tools for calls: those of the side and, for queued calls, also agents that its prompt does not
// list.
func (r *run) offer(ctx context.Context, calls []store.ToolCall) (*tool.Set, error) {
	set := r.code.Tools
	for _, call := range calls {
		m := r.conv.Caller(call.ID)
		if set.Has(call.Name) || m == nil || m.Metadata[transcript.MetadataQueuedTool] == nil {
			continue
		}
		x, err := r.code.Execution(ctx)
		if err != nil {
			return nil, err
		}
		t, err := x.Queued(ctx, call.Name, m)
		if err != nil {
			return nil, err
		}
		if t != nil {
			set = set.With(t)
		}
	}
	return set, nil
}

// callAtOnce makes calls concurrently and records their results in the order of the calls.
func (r *run) callAtOnce(ctx context.Context, how making, calls []store.ToolCall) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	over := false
	defer func() {
		if !over { // cancel before the wait: a call whose result is no longer wanted must not hold up the run
			cancel()
		} // work that continues after an answer may outlive the step
	}()
	slots := make(chan struct{}, r.engine.opts.Limits.ParallelCalls)
	results := make([]chan outcome, len(calls))
	for i := range calls {
		results[i] = make(chan outcome, 1)
	}
	group.Go(func() {
		for i, call := range calls {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				results[i] <- r.call(ctx, how, call)
			})
		}
	})
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	for i, call := range calls {
		o, err := serving(ctx, r, how.broker, results[i])
		if err != nil {
			return err
		}
		if o.result.Prompt != nil {
			if _, err := serving(ctx, r, how.broker, all); err != nil { // a called prompt changes fields of the run that the other calls read
				return err
			}
			if o, err = r.prompted(ctx, call, o, how.repeat); err != nil {
				return err
			}
		}
		if err := r.recordResult(ctx, call, o, nil); err != nil {
			return err
		}
	}
	over = true
	return nil
}

// outcome is the outcome of one call.
type outcome struct {
	result   tool.Result
	duration int64 // milliseconds
	panicked bool
}

// call makes one call. A call that needed approval is made as it was decided. It may run on a goroutine of its own.
func (r *run) call(ctx context.Context, how making, call store.ToolCall) (o outcome) {
	if ctx.Err() != nil {
		return o
	}
	start := r.engine.opts.Clock.Now()
	defer func() {
		o.duration = r.engine.opts.Clock.Since(start).Milliseconds()
		if p := recover(); p != nil {
			r.log.Error(fmt.Errorf("panic: %v", p), "a tool failed because the engine panicked", "tool", call.Name, "stack", string(debug.Stack()))
			o.panicked = true
		}
	}()
	if d, ok := how.decided[call.ID]; ok {
		if !d.Approved {
			o.result = refusal(&d)
			return o
		}
		if d.Arguments != nil {
			call.Arguments = string(d.Arguments)
		}
	}
	if refused := how.refuse(call); refused != nil {
		o.result = *refused
		return o
	}
	r.engine.fault("call.before")
	ctx, over := membudget.Part(ctx) // what the tool answers is part of the conversation afterwards
	defer over()
	ctx, observed := runtrace.Call(ctx, r.engine.opts.Clock, r.Thread, call, how.set.Has(call.Name))
	defer func() { observed(&o.result, o.panicked) }()
	calling, done := codeexec.Lasting(ctx, how.code)
	defer done()
	o.result = how.set.Call(how.broker.At(r.hooks.Causation(calling), call, how.repeat), tool.Call{ID: call.ID, Name: call.Name, Arguments: json.RawMessage(call.Arguments), Repeat: how.repeat})
	if len(how.code) > 0 {
		o.result = r.engine.env.AtOnce(calling, codeexec.Deadline(how.code...), call.Name, o.result)
	}
	r.engine.fault("call.after")
	return o
}

// recordResult puts a result into the log, together with the start of the next call.
func (r *run) recordResult(ctx context.Context, call store.ToolCall, o outcome, next *store.ToolCall) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.panicked:
		return failure.New(failure.ReasonInternalError, "internal error in the tool %s: see the manager's log for run %s", call.Name, r.record.ID)
	case o.result.Wait != nil:
		r.Checkpoint.AddWait(call.ID, *o.result.Wait, r.CallID(), r.engine.now())
		return nil
	case o.result.Handoff != "" && r.IsHanded():
		o.result = tool.Failure("the conversation passes to the agent " + r.Next + " already")
	}
	content := r.engine.opts.Redact(r.Thread.Namespace, o.result.Content)
	m := &store.Message{
		ID: runlog.NewMessageID(), Role: store.RoleTool, CreatedAt: r.engine.now(), Status: store.MessageCompleted, RunID: r.record.ID,
		Name: call.Name, ToolCallID: call.ID, ToolStatus: string(o.result.Status), Content: &content, Attachments: o.result.Attachments,
		Side: r.Mark(),
	}
	r.Place(m)
	waited := r.Checkpoint.RemoveWait(call.ID)
	changed := r.Checkpoint.MarkDecision(call, m) || waited
	if err := r.hooks.BeforeResult(ctx, call, m); err != nil {
		return err
	}
	content = clip.Result(r.requests.Redacted(transcript.ContentOf(m)), r.engine.opts.Limits.ToolResultBytes) // a hook may have added secrets
	m.Content = &content
	r.hooks.AfterResult(ctx, call, m)
	s := r.newStep("result")
	s.appendMessage(m)
	s.add(runlog.Event(r.record.ID, store.EventToolEnded, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID, Status: m.ToolStatus, DurationMs: o.duration}))
	if next != nil {
		s.add(runlog.Event(r.record.ID, store.EventToolStarted, "", toolEvent{Name: next.Name, ToolCallID: next.ID}))
	}
	if changed = r.code.Decided() || changed; changed {
		r.record.State = r.Checkpoint.Encode()
		s.checkpoint(r.record)
	}
	if o.result.Handoff != "" {
		s.add(codeexec.HandoffOp(o.result.Handoff, r.record.ID, call.ID))
	}
	s.saveScopes(false)
	if err := s.commit(ctx); err != nil {
		return err
	}
	if o.result.Handoff != "" {
		r.Next = o.result.Handoff
	}
	return nil
}
