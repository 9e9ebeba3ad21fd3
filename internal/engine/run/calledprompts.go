package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/calls"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A prompt that is called as a tool (AGT-05) is a conversation within the run. Its messages are in the thread's log,
// one level deeper than those of the caller, so that a crash undoes none of its steps. Its last answer is the result
// of the call. It shares everything with the run except what it reads, its model and its tools.

// promptCalls are the calls of prompts in a run.
type promptCalls struct{ run *run }

// execute executes the prompt that an outcome asks for, and returns the outcome of its call. Any other outcome is
// returned as it is.
func (c promptCalls) execute(ctx context.Context, call store.ToolCall, o calls.Outcome, repeat bool) (calls.Outcome, error) {
	r := c.run
	p := o.Result.Prompt
	if p == nil {
		return o, nil
	}
	start := r.service.opts.Clock.Now()
	var err error
	o.Result, err = c.call(ctx, call, p, repeat, nil)
	o.Duration = r.service.opts.Clock.Since(start).Milliseconds()
	return o, err
}

// call makes the run act as a called prompt until the prompt has answered. a is the request of code; nil when a
// model made the call.
func (c promptCalls) call(ctx context.Context, call store.ToolCall, p *tool.PromptCall, repeat bool, a *codeexec.Ask) (tool.Result, error) {
	r := c.run
	called := r.Agent.Prompts[p.Prompt]
	limit := r.service.opts.Limits.PromptDepth
	switch {
	case called == nil || called.Side == nil && called.Err == nil:
		return tool.Failure("there is no prompt " + p.Prompt + ": go on without it"), nil
	case called.Err != nil:
		return tool.Failure(fmt.Sprintf("the prompt %s cannot be called now: %v", p.Prompt, called.Err)), nil
	case r.Depth() >= limit:
		return tool.Failure(fmt.Sprintf("prompts may call each other %d levels deep, and this is level %d: do it yourself", limit, r.Depth())), nil
	}
	leave := c.enter(call, p, called, a)
	defer leave()
	if err := c.begin(ctx, p, repeat || r.State.HasEntered(call.ID)); err != nil {
		return tool.Result{}, err
	}
	r.resumed = repeat
	text, waits, err := c.converse(ctx)
	r.resumed = false
	var failed *failure.Error
	switch {
	case waits && r.CodeWaits():
		return tool.Failure("the prompt " + p.Prompt + " has to wait for something, which code cannot: call it through queueTool"), nil
	case waits:
		return promptWaitResult(), nil
	case errors.As(err, &failed) && p.HideErrors:
		return tool.Failure("the prompt " + p.Prompt + " failed"), nil
	case errors.As(err, &failed):
		return tool.Failure(fmt.Sprintf("the prompt %s failed: %s", p.Prompt, failed.Message)), nil
	case err != nil:
		return tool.Result{}, err
	}
	return tool.Success(report(r.conv, p, text)), nil
}

// callForCode calls a prompt for code, on the goroutine of the run. An error ends the run.
func (c promptCalls) callForCode(ctx context.Context, a *codeexec.Ask) (tool.Result, error) {
	r := c.run
	if a.Life.Err() != nil {
		return tool.Result{}, nil // no call waits for the result any more
	}
	res, err := c.call(ctx, a.Call, a.Prompt, a.Repeat, a)
	r.code.BeginTurn(r.conv) // code reads the state of the run itself again
	return res, err
}

// enter makes the run act as a called prompt until leave is called.
func (c promptCalls) enter(call store.ToolCall, p *tool.PromptCall, called *definition.CalledPrompt, a *codeexec.Ask) (leave func()) {
	r := c.run
	side := *called.Side
	side.Name, side.Hooks = r.Side().Name, r.Side().Hooks // the hooks that watch the conversation apply here too
	side.Spec.MaxSteps = int32(r.MaxSteps())
	f := &role.Frame{Side: &side, Call: call, Arguments: p.Arguments, Depth: r.Depth() + 1, Outer: r.conv}
	made := call.ID // the id of the call that is in the conversation
	if a != nil {
		made = a.Outer.ID
	}
	if caller := r.conv.Caller(made); caller != nil {
		parent := *caller
		f.Parent = &parent
	}
	if r.Frame != nil {
		f.Path, f.Code = append(f.Path, r.Frame.Path...), append(f.Code, r.Frame.Code...)
	}
	if a != nil {
		f.Code = append(f.Code, a.Life)
	}
	f.Path = append(f.Path, p.Prompt)
	before, conv, tools, repairs := r.Frame, r.conv, r.code.Tools, r.State.Turn.Repairs
	r.State.Turn.Repairs = 0
	r.Frame, r.conv, r.code.Tools = f, transcript.New(), nil
	r.code.Exec.ActWithin(f.Side, f.Path)
	return func() {
		r.Frame, r.conv, r.code.Tools, r.State.Turn.Repairs = before, conv, tools, repairs
		if before != nil {
			r.code.Exec.ActWithin(before.Side, before.Path)
		} else {
			r.code.Exec.ActWithin(nil, nil)
		}
		r.current = false
	}
}

// begin loads what an interrupted run has left of the call. Otherwise it begins the call with the message that
// the prompt answers, under an id that derives from the call.
func (c promptCalls) begin(ctx context.Context, p *tool.PromptCall, repeat bool) error {
	r := c.run
	if repeat {
		var after int64
		if r.Frame.Parent != nil {
			after = r.Frame.Parent.Seq
		}
		own := func(m *store.Message) bool { return role.PromptCallOf(m) == r.Frame.Call.ID }
		conv, err := transcript.CalledPromptMessages(ctx, r.service.opts.Store, r.Thread.ID, after, own)
		if err == nil {
			r.conv, err = conv, r.recallEnds(ctx, conv)
		}
		if err != nil || len(r.conv.Messages) > 0 {
			_, r.State.Turn.Repairs = r.conv.LastRepair()
			return err
		}
	}
	id := "msg_" + uuid.NewSHA1(runlog.KeySpace, []byte(r.Thread.ID+"\x00"+r.Frame.Call.ID)).String()
	text := strings.ToValidUTF8(strings.ReplaceAll(p.Message, "\x00", "\uFFFD"), "\uFFFD")
	m := &store.Message{ID: id, Role: store.RoleUser, CreatedAt: r.service.now(), Status: store.MessageCompleted, RunID: r.record.ID, Content: &text}
	r.Place(m)
	if err := r.hooks.BeforeCreate(ctx, m); err != nil {
		return err
	}
	tx := r.newTransaction("prompt")
	tx.createMessage(ctx, m)
	return tx.commit(ctx)
}

// converse executes the called prompt until it has answered, or can only wait.
func (c promptCalls) converse(ctx context.Context) (text string, waits bool, err error) {
	r := c.run
	for {
		if ctx.Err() != nil {
			return "", false, context.Cause(ctx)
		}
		if err := r.checkInterrupted(); err != nil {
			return "", false, err
		}
		if r.IsDeserted() {
			return "", false, failure.New(skeinv1.ReasonCancelled, "the code that called it has ended")
		}
		wrong, _ := r.conv.LastRepair()
		d := plan.Next(r.conv, r.record.ID, r.Side(), wrong, r.State.Waits, r.Parallel())
		switch {
		case d.Action == plan.EndTurn, d.Action == plan.EndSession:
			return d.End.Text, false, nil
		case d.Action == plan.Wait:
			return "", true, nil
		case d.Action == plan.MakeCalls:
			err = r.makeCalls(ctx, d.Calls)
		case r.State.Turn.Ends: // code has ended the session
			return "", false, nil
		default:
			_, err = r.ask(ctx)
		}
		if err != nil {
			return "", false, err
		}
	}
}

// report returns the result of a call of a prompt whose conversation is c.
func report(c *transcript.Conversation, p *tool.PromptCall, text string) string {
	var parts []string
	if p.IncludeText && text != "" {
		parts = append(parts, text)
	}
	if p.IncludeCalls {
		for i := range c.Messages {
			for _, call := range c.Messages[i].ToolCalls {
				line := fmt.Sprintf("[called %s(%s)]", call.Name, call.Arguments)
				if result := c.Result(call.ID); result != nil {
					line += fmt.Sprintf("\n[%s] %s", result.ToolStatus, transcript.ContentOf(result))
				}
				parts = append(parts, line)
			}
		}
	}
	if len(parts) == 0 {
		return "done"
	}
	return strings.Join(parts, "\n\n")
}
