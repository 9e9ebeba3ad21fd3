package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A prompt that is called as a tool (AGT-05) is a conversation within the run. Its messages are in the thread's log,
// one level deeper than those of the caller, so that a crash undoes none of its steps. Its last answer is the result
// of the call. It shares everything with the run except what it reads, its model and its tools.

// metadataPromptCall is the metadata key, on the messages of a called prompt, of the id of the call that the prompt
// answers.
const metadataPromptCall = "prompt_call_id"

// frame is a called prompt at work. Like the run, it belongs to the goroutine that executes the run.
type frame struct {
	side      *definition.Side
	call      store.ToolCall
	arguments json.RawMessage
	depth     int // depth of its messages
	parent    *store.Message
	outer     *transcript.Conversation // the conversation that the caller reads
	path      []string                 // the called prompts up to this one, outermost first, without the side's own prompt
	// code holds the contexts of code that waits for the answer. It is empty when only the conversation waits, which
	// may be parked.
	code []context.Context
}

// depth returns the depth of the messages that the run writes.
func (r *role) depth() int {
	if r.frame == nil {
		return 0
	}
	return r.frame.depth
}

// arguments returns the arguments of the thread or, in a called prompt, of the call.
func (r *role) arguments() json.RawMessage {
	if r.frame == nil {
		return r.thread.Arguments
	}
	return r.frame.arguments
}

// place sets the depth, parent and call of a message that a called prompt writes.
func (r *role) place(m *store.Message) {
	if r.frame == nil {
		return
	}
	m.Depth = r.frame.depth
	if r.frame.parent != nil {
		m.ParentID = r.frame.parent.ID
	}
	metadata := maps.Clone(m.Metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata[metadataPromptCall] = r.frame.call.ID
	m.Metadata = metadata
}

// prompted executes the prompt that an outcome asks for, and returns the outcome of its call. Any other outcome is
// returned as it is.
func (r *run) prompted(ctx context.Context, call store.ToolCall, o outcome, repeat bool) (outcome, error) {
	p := o.result.Prompt
	if p == nil {
		return o, nil
	}
	start := r.engine.opts.Clock.Now()
	var err error
	o.result, err = r.callPrompt(ctx, call, p, repeat, nil)
	o.duration = r.engine.opts.Clock.Since(start).Milliseconds()
	return o, err
}

// callPrompt makes the run act as a called prompt until the prompt has answered. a is the request of code; nil when a
// model made the call.
func (r *run) callPrompt(ctx context.Context, call store.ToolCall, p *tool.PromptCall, repeat bool, a *codeexec.Ask) (tool.Result, error) {
	called := r.agent.Prompts[p.Prompt]
	limit := r.engine.opts.Limits.PromptDepth
	switch {
	case called == nil || called.Side == nil && called.Err == nil:
		return tool.Failure("there is no prompt " + p.Prompt + ": go on without it"), nil
	case called.Err != nil:
		return tool.Failure(fmt.Sprintf("the prompt %s cannot be called now: %v", p.Prompt, called.Err)), nil
	case r.depth() >= limit:
		return tool.Failure(fmt.Sprintf("prompts may call each other %d levels deep, and this is level %d: do it yourself", limit, r.depth())), nil
	}
	leave := r.enter(call, p, called, a)
	defer leave()
	if err := r.beginPrompt(ctx, p, repeat || r.entered(call.ID)); err != nil {
		return tool.Result{}, err
	}
	r.resumed = repeat
	text, waits, err := r.converse(ctx)
	r.resumed = false
	var failed *failure.Error
	switch {
	case waits && r.codeWaits():
		return tool.Failure("the prompt " + p.Prompt + " has to wait for something, which code cannot: call it through queueTool"), nil
	case waits:
		return parked(), nil
	case errors.As(err, &failed) && p.HideErrors:
		return tool.Failure("the prompt " + p.Prompt + " failed"), nil
	case errors.As(err, &failed):
		return tool.Failure(fmt.Sprintf("the prompt %s failed: %s", p.Prompt, failed.Message)), nil
	case err != nil:
		return tool.Result{}, err
	}
	return tool.Success(report(r.conv, p, text)), nil
}

// enter makes the run act as a called prompt until leave is called.
func (r *run) enter(call store.ToolCall, p *tool.PromptCall, called *definition.CalledPrompt, a *codeexec.Ask) (leave func()) {
	side := *called.Side
	side.Name, side.Hooks = r.side().Name, r.side().Hooks // the hooks that watch the conversation apply here too
	side.Spec.MaxSteps = int32(r.maxSteps())
	f := &frame{side: &side, call: call, arguments: p.Arguments, depth: r.depth() + 1, outer: r.conv}
	made := call.ID // the id of the call that is in the conversation
	if a != nil {
		made = a.Outer.ID
	}
	if caller := r.conv.Caller(made); caller != nil {
		parent := *caller
		f.parent = &parent
	}
	if r.frame != nil {
		f.path, f.code = append(f.path, r.frame.path...), append(f.code, r.frame.code...)
	}
	if a != nil {
		f.code = append(f.code, a.Life)
	}
	f.path = append(f.path, p.Prompt)
	before, conv, tools, repairs := r.frame, r.conv, r.tools, r.checkpoint.Turn.Repairs
	r.checkpoint.Turn.Repairs = 0
	r.frame, r.conv, r.tools = f, transcript.New(), nil
	r.exec.ActWithin(f.side, f.path)
	return func() {
		r.frame, r.conv, r.tools, r.checkpoint.Turn.Repairs = before, conv, tools, repairs
		if before != nil {
			r.exec.ActWithin(before.side, before.path)
		} else {
			r.exec.ActWithin(nil, nil)
		}
		r.current = false
	}
}

// beginPrompt loads what an interrupted run has left of the call. Otherwise it begins the call with the message that
// the prompt answers, under an id that derives from the call.
func (r *run) beginPrompt(ctx context.Context, p *tool.PromptCall, repeat bool) error {
	if repeat {
		if err := r.loadFrame(ctx); err != nil || len(r.conv.Messages) > 0 {
			_, r.checkpoint.Turn.Repairs = r.conv.Repaired()
			return err
		}
	}
	id := "msg_" + uuid.NewSHA1(runlog.KeySpace, []byte(r.thread.ID+"\x00"+r.frame.call.ID)).String()
	text := strings.ToValidUTF8(strings.ReplaceAll(p.Message, "\x00", "\uFFFD"), "\uFFFD")
	m := &store.Message{ID: id, Role: store.RoleUser, CreatedAt: r.engine.now(), Status: store.MessageCompleted, RunID: r.record.ID, Content: &text}
	r.place(m)
	if err := r.hooks.BeforeCreate(ctx, m); err != nil {
		return err
	}
	s := r.newStep("prompt")
	s.createMessage(ctx, m)
	return s.commit(ctx)
}

// loadFrame loads the messages of the call.
func (r *run) loadFrame(ctx context.Context) error {
	var after int64
	if r.frame.parent != nil {
		after = r.frame.parent.Seq
	}
	conv, err := r.framesMessages(ctx, after, func(m *store.Message) bool { return within(m) == r.frame.call.ID })
	if err == nil {
		r.conv = conv
	}
	return err
}

// converse executes the called prompt until it has answered, or can only wait.
func (r *run) converse(ctx context.Context) (text string, waits bool, err error) {
	for {
		if ctx.Err() != nil {
			return "", false, context.Cause(ctx)
		}
		if err := r.interrupted(); err != nil {
			return "", false, err
		}
		if r.deserted() {
			return "", false, failure.New(failure.ReasonCancelled, "the code that called it has ended")
		}
		wrong, _ := r.conv.Repaired()
		d := plan.Next(r.conv, r.record.ID, r.side(), wrong, r.checkpoint.Waits, r.parallel())
		switch {
		case d.Action == plan.EndTurn, d.Action == plan.EndSession:
			return d.End.Text, false, nil
		case d.Action == plan.Wait:
			return "", true, nil
		case d.Action == plan.MakeCalls:
			err = r.makeCalls(ctx, d.Calls)
		case r.checkpoint.Turn.Ends: // code has ended the session
			return "", false, nil
		default:
			_, err = r.ask(ctx)
		}
		if err != nil {
			return "", false, err
		}
	}
}

// withChat returns what a called prompt reads. When it includes the caller's conversation, the messages from before
// the step that made the call come first.
func (r *role) withChat(own *transcript.Conversation) *transcript.Conversation {
	f := r.frame
	if f == nil || !isSet(f.side.Prompt.Spec.IncludeChat) {
		return own
	}
	tools := isSet(f.side.Prompt.Spec.IncludePastTools)
	out, side := transcript.New(), r.agent.Side(r.checkpoint.Turn.Side)
	if r.acting != nil {
		side = r.acting
	}
	for _, m := range transcript.Compacted(transcript.WithoutSummaries(f.outer), r.summaryOf(f.outer, side)).Messages {
		if f.parent != nil && m.ID == f.parent.ID {
			break
		}
		if !tools {
			if m.Role == store.RoleTool || m.Role == store.RoleAssistant && transcript.ContentOf(&m) == "" {
				continue
			}
			m.ToolCalls = nil
		}
		out.Append(m)
	}
	for _, m := range own.Messages {
		out.Append(m)
	}
	return out
}

func isSet(b *bool) bool { return b != nil && *b }

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
