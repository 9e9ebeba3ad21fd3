package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Code may call a prompt with state.invokeTool, and waits for its answer (TOL-01, AGT-05). The prompt is at work
// within the run as one that a model calls is: by the run's own goroutine, which serves the code while it waits for the
// result of the code's own call. Its messages are in the log under an id that derives from what the code asked for, so
// that code which is called again after a crash gets what was answered before, and nothing is asked twice.
//
// Code cannot be parked: what would have to wait for a person is refused within such a prompt, and nothing is done.

// promptBroker is where code asks the run for the prompts that it calls, while the calls of a step are made.
type promptBroker struct {
	execution *execution
	side      *definition.Side // whose calls these are
	within    *definition.Side // the called prompt whose calls these are; nil for none
	reader    thread.EnvReader
	asks      chan *promptAsk
	closed    chan struct{}
}

// promptAsk is one prompt that code calls.
type promptAsk struct {
	life   context.Context // of the code that waits
	outer  store.ToolCall  // the call that the code is of
	call   store.ToolCall
	prompt *tool.PromptCall
	repeat bool
	answer chan tool.Result
}

// caller is a call whose code may ask at a desk.
type caller struct {
	*promptBroker
	outer  store.ToolCall
	repeat bool
}

type callerKey struct{}

// callerIn tells which call of the execution the code is of that is at work in ctx; nil for none.
func (x *execution) callerIn(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.execution != x {
		return nil // the code of another thread, which has a run of its own
	}
	return c
}

// openBroker lets the code of calls ask for prompts until it is shut; nil where the agent has none, or the calls no code.
func (r *run) openBroker() (d *promptBroker, shut func()) {
	if r.exec == nil || len(r.agent.Prompts) == 0 {
		return nil, func() {}
	}
	d = &promptBroker{execution: r.exec, side: r.side(), reader: r.reader(), asks: make(chan *promptAsk), closed: make(chan struct{})}
	if r.frame != nil {
		d.within = r.frame.side
	}
	return d, func() { close(d.closed) }
}

// at is the context of a call whose code may ask here.
func (d *promptBroker) at(ctx context.Context, call store.ToolCall, repeat bool) context.Context {
	if d == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, &caller{promptBroker: d, outer: call, repeat: repeat})
}

// ask has the run call a prompt, and waits for what comes of it.
func (c *caller) ask(ctx context.Context, id, name string, args json.RawMessage, p *tool.PromptCall) (tool.Result, error) {
	a := &promptAsk{
		life: ctx, outer: c.outer, prompt: p, repeat: c.repeat, answer: make(chan tool.Result, 1),
		call: store.ToolCall{ID: id, Name: name, Arguments: string(args)},
	}
	select {
	case c.asks <- a:
	case <-c.closed:
		return onlyInRun(name), nil
	case <-ctx.Done():
		return tool.Result{}, context.Cause(ctx)
	}
	select {
	case res := <-a.answer:
		return res, nil
	case <-ctx.Done():
		return tool.Result{}, context.Cause(ctx)
	}
}

// onlyInRun refuses a prompt to code that is not of a tool's call: nobody is there who could let it work.
func onlyInRun(name string) tool.Result {
	return tool.Failure(name + " is a prompt, which the code of a tool can call while a run waits for it: call it through queueTool here")
}

// callServing makes one call, and serves its code meanwhile. An error ends the run.
func (r *run) callServing(ctx context.Context, how making, call store.ToolCall) (o outcome, err error) {
	if how.broker == nil {
		return r.call(ctx, how, call), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	done, over := make(chan outcome, 1), false
	defer func() {
		if !over { // it must not outlive the step; what goes on behind an answer may
			cancel()
			<-done
		}
	}()
	go func() { done <- r.call(ctx, how, call) }()
	o, err = serving(ctx, r, how.broker, done)
	over = err == nil
	return o, err
}

// serving waits for something that calls give, and calls the prompts that their code asks for meanwhile.
func serving[T any](ctx context.Context, r *run, d *promptBroker, until <-chan T) (got T, err error) {
	var asks <-chan *promptAsk
	if d != nil {
		asks = d.asks
	}
	for {
		select {
		case got = <-until:
			return got, nil
		case a := <-asks:
			res, err := r.callForCode(ctx, a)
			if err != nil {
				return got, err
			}
			a.answer <- res
		}
	}
}

// callForCode lets the run be a prompt that code calls. An error is the run's.
func (r *run) callForCode(ctx context.Context, a *promptAsk) (tool.Result, error) {
	if a.life.Err() != nil {
		return tool.Result{}, nil // nobody waits for it any more
	}
	res, err := r.callPrompt(ctx, a.call, a.prompt, a.repeat, a)
	r.beginTurn() // what the code reads of the run is its own again
	return res, err
}

// codeWaits tells whether code waits for what the run is doing.
func (r *run) codeWaits() bool { return r.frame != nil && len(r.frame.code) > 0 }

// deserted tells whether code has ended for which the run is at work.
func (r *run) deserted() bool {
	if r.frame == nil {
		return false
	}
	for _, life := range r.frame.code {
		if life.Err() != nil {
			return true
		}
	}
	return false
}

// whileWanted ends with ctx, or as soon as nobody waits for what the run is doing.
func (r *run) whileWanted(ctx context.Context) (context.Context, func()) {
	if r.frame == nil {
		return ctx, func() {}
	}
	return lasting(ctx, r.frame.code)
}

// lasting ends with ctx or with any of the lives, until done is called: from then on with ctx alone, for work that goes on
// after the answer.
func lasting(ctx context.Context, lives []context.Context) (out context.Context, done func()) {
	if len(lives) == 0 {
		return ctx, func() {}
	}
	out, cancel := context.WithCancel(ctx)
	stops := []func() bool{}
	context.AfterFunc(ctx, cancel) // the end of ctx is what frees it
	for _, life := range lives {
		stops = append(stops, context.AfterFunc(life, cancel))
	}
	return out, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// builtFor gives the tools of those whose code asks at a desk, also while a prompt is at work that it has called.
func (x *execution) builtFor(ctx context.Context, d *promptBroker) (*tool.Set, error) {
	x.mu.Lock()
	set := x.tools
	if x.within != d.within {
		set = nil
	}
	x.mu.Unlock()
	if set != nil {
		return set, nil
	}
	return x.toolsOf(ctx, d.side)
}

// ---- what code cannot wait for --------------------------------------------------------------------------

// unapproved is the result of a call that has to be approved, where code waits for it.
func unapproved(name string) tool.Result {
	return tool.Failure("calls of " + name + " have to be approved, which code cannot wait for: use queueTool, or leave it to the model. Nothing was done")
}

// refuse gives the result of a call that is not made, because code waits for it; nil for one that is made.
func (how *making) refuse(call store.ToolCall) *tool.Result {
	for _, life := range how.code {
		if life.Err() != nil {
			res := tool.Failure("the call was not made: the code that waits for it has ended")
			return &res
		}
	}
	if len(how.code) > 0 && how.set.NeedsApproval(call.Name, json.RawMessage(call.Arguments)) != nil {
		res := unapproved(call.Name)
		return &res
	}
	return nil
}

// atOnce gives the result of a call that code waits for: a time is waited for here as far as the code has it, and what
// else comes later comes apart from it.
func (e *Engine) atOnce(ctx context.Context, deadline time.Time, name string, res tool.Result) tool.Result {
	switch w := res.Wait; {
	case w == nil:
		return res
	case w.Kind == tool.WaitDelay && w.For < time.Until(deadline):
		select {
		case <-e.opts.Clock.After(w.For):
			return tool.Success("the time is over")
		case <-ctx.Done():
			return tool.Failure("the code was ended while it waited")
		}
	case w.Kind == tool.WaitDelay:
		return tool.Failure(fmt.Sprintf("%s would take %s, longer than the code may: nothing was done. Schedule an effect, or call %s through queueTool", name, w.For, name))
	case w.Kind == tool.WaitChild:
		return tool.Success("the subagent " + w.Reference + " was started; code cannot wait for it: its result comes to the conversation as a message of its own")
	}
	return tool.Failure(name + " has to wait for something, which code cannot: call it through queueTool")
}

// deadline is when the first of those ends who wait for a call; the zero time where none is bounded.
func deadline(lives ...context.Context) (first time.Time) {
	for _, life := range lives {
		if at, bounded := life.Deadline(); bounded && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
