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

// Code may call a prompt with state.invokeTool, and waits for its answer (TOL-01, AGT-05). Such a prompt works within
// the run, like one that a model calls. The goroutine of the run executes it, since that goroutine serves the code
// while it waits for the result of the code's own call. The messages of the prompt are in the log under an id that
// derives from the request of the code. Code that is called again after a crash therefore gets the answers that it
// got before, and nothing is asked twice.
//
// Code cannot be parked. Within such a prompt, a call that would have to wait for a person is refused, and nothing is
// done.

// promptBroker passes requests for prompts from code to the run, while the calls of a step are made. Code sends on
// asks, and the goroutine of the run receives.
type promptBroker struct {
	execution *execution
	side      *definition.Side // the side that makes the calls
	within    *definition.Side // the called prompt that makes the calls; nil for none
	reader    thread.EnvReader
	asks      chan *promptAsk
	closed    chan struct{}
}

// promptAsk is the request of code for one call of a prompt.
type promptAsk struct {
	life   context.Context // ends with the code that waits
	outer  store.ToolCall  // the call that the code belongs to
	call   store.ToolCall
	prompt *tool.PromptCall
	repeat bool
	answer chan tool.Result
}

// caller is a call whose code may ask at a prompt broker.
type caller struct {
	*promptBroker
	outer  store.ToolCall
	repeat bool
}

type callerKey struct{}

// callerIn returns the call of this execution whose code runs in ctx; nil for none.
func (x *execution) callerIn(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.execution != x {
		return nil // code of another thread, which has a run of its own
	}
	return c
}

// openBroker lets the code of calls ask for prompts until shut is called. It returns nil when the agent has no
// prompts to call, or the run has no code.
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

// at returns the context of a call whose code may ask at this broker.
func (d *promptBroker) at(ctx context.Context, call store.ToolCall, repeat bool) context.Context {
	if d == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, &caller{promptBroker: d, outer: call, repeat: repeat})
}

// ask requests that the run calls a prompt, and waits for the result.
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

// onlyInRun returns the result for code outside of a tool call that asks for a prompt: no run could execute it.
func onlyInRun(name string) tool.Result {
	return tool.Failure(name + " is a prompt, which the code of a tool can call while a run waits for it: call it through queueTool here")
}

// callServing makes one call, and serves its code in the meantime. An error ends the run.
func (r *run) callServing(ctx context.Context, how making, call store.ToolCall) (o outcome, err error) {
	if how.broker == nil {
		return r.call(ctx, how, call), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	done, over := make(chan outcome, 1), false
	defer func() {
		if !over { // the call must not outlive the step; work that continues after an answer may
			cancel()
			<-done
		}
	}()
	go func() { done <- r.call(ctx, how, call) }()
	o, err = serving(ctx, r, how.broker, done)
	over = err == nil
	return o, err
}

// serving waits for a value from until. In the meantime it calls the prompts that code asks for.
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

// callForCode calls a prompt for code, on the goroutine of the run. An error ends the run.
func (r *run) callForCode(ctx context.Context, a *promptAsk) (tool.Result, error) {
	if a.life.Err() != nil {
		return tool.Result{}, nil // nobody waits for the result any more
	}
	res, err := r.callPrompt(ctx, a.call, a.prompt, a.repeat, a)
	r.beginTurn() // code reads the state of the run itself again
	return res, err
}

// codeWaits reports whether code waits for what the run is doing.
func (r *run) codeWaits() bool { return r.frame != nil && len(r.frame.code) > 0 }

// deserted reports whether code that waits for what the run is doing has ended.
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

// whileWanted returns a context that ends with ctx, or as soon as code that waits for what the run is doing has
// ended.
func (r *run) whileWanted(ctx context.Context) (context.Context, func()) {
	if r.frame == nil {
		return ctx, func() {}
	}
	return lasting(ctx, r.frame.code)
}

// lasting returns a context that ends with ctx or with any of lives. After done is called it ends with ctx alone, for
// work that continues after the answer.
func lasting(ctx context.Context, lives []context.Context) (out context.Context, done func()) {
	if len(lives) == 0 {
		return ctx, func() {}
	}
	out, cancel := context.WithCancel(ctx)
	stops := []func() bool{}
	context.AfterFunc(ctx, cancel) // the end of ctx releases the context
	for _, life := range lives {
		stops = append(stops, context.AfterFunc(life, cancel))
	}
	return out, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// builtFor returns the tools for the calls of a prompt broker, also while a prompt is at work that their code has
// called.
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

// unapproved returns the result of a call that needs approval and that code waits for.
func unapproved(name string) tool.Result {
	return tool.Failure("calls of " + name + " have to be approved, which code cannot wait for: use queueTool, or leave it to the model. Nothing was done")
}

// refuse returns the result of a call that is not made because code waits for it; nil for a call that is made.
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

// atOnce returns the result of a call that code waits for. It waits here for a delay that ends before the deadline.
// Other results that come later reach the conversation apart from the code, or the call fails.
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

// deadline returns the earliest deadline of lives; the zero time when none has a deadline.
func deadline(lives ...context.Context) (first time.Time) {
	for _, life := range lives {
		if at, bounded := life.Deadline(); bounded && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
