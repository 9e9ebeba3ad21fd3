package codeexec

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

// Broker passes requests for prompts from code to the run, while the calls of a step are made. Code sends on
// asks, and the goroutine of the run receives.
type Broker struct {
	Execution *Execution
	Side      *definition.Side // the side that makes the calls
	Within    *definition.Side // the called prompt that makes the calls; nil for none
	Reader    thread.EnvReader
	Asks      chan *Ask
	Closed    chan struct{}
}

// Ask is the request of code for one call of a prompt.
type Ask struct {
	Life   context.Context // ends with the code that waits
	Outer  store.ToolCall  // the call that the code belongs to
	Call   store.ToolCall
	Prompt *tool.PromptCall
	Repeat bool
	Answer chan tool.Result
}

// caller is a call whose code may ask at a prompt broker.
type caller struct {
	*Broker
	outer  store.ToolCall
	repeat bool
}

type callerKey struct{}

// callerIn returns the call of this execution whose code runs in ctx; nil for none.
func (x *Execution) callerIn(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	if c == nil || c.Execution != x {
		return nil // code of another thread, which has a run of its own
	}
	return c
}

// WithCall returns the context of a call whose code may ask at this broker.
func (d *Broker) WithCall(ctx context.Context, call store.ToolCall, repeat bool) context.Context {
	if d == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, &caller{Broker: d, outer: call, repeat: repeat})
}

// ask requests that the run calls a prompt, and waits for the result.
func (c *caller) ask(ctx context.Context, id, name string, args json.RawMessage, p *tool.PromptCall) (tool.Result, error) {
	a := &Ask{
		Life: ctx, Outer: c.outer, Prompt: p, Repeat: c.repeat, Answer: make(chan tool.Result, 1),
		Call: store.ToolCall{ID: id, Name: name, Arguments: string(args)},
	}
	select {
	case c.Asks <- a:
	case <-c.Closed:
		return onlyInRunResult(name), nil
	case <-ctx.Done():
		return tool.Result{}, context.Cause(ctx)
	}
	select {
	case res := <-a.Answer:
		return res, nil
	case <-ctx.Done():
		return tool.Result{}, context.Cause(ctx)
	}
}

// onlyInRunResult returns the result for code outside of a tool call that asks for a prompt: no run could execute it.
func onlyInRunResult(name string) tool.Result {
	return tool.Failure(name + " is a prompt, which the code of a tool can call while a run waits for it: call it through queueTool here")
}

// WithLives returns a context that ends with ctx or with any of lives. After done is called it ends with ctx alone, for
// work that continues after the answer.
func WithLives(ctx context.Context, lives []context.Context) (out context.Context, done func()) {
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

// toolsFor returns the tools for the calls of a prompt broker, also while a prompt is at work that their code has
// called.
func (x *Execution) toolsFor(ctx context.Context, d *Broker) (*tool.Set, error) {
	x.mu.Lock()
	set := x.tools
	if x.within != d.Within {
		set = nil
	}
	x.mu.Unlock()
	if set != nil {
		return set, nil
	}
	return x.toolsOf(ctx, d.Side)
}

// ---- what code cannot wait for --------------------------------------------------------------------------

// UnapprovedResult returns the result of a call that needs approval and that code waits for.
func UnapprovedResult(name string) tool.Result {
	return tool.Failure("calls of " + name + " have to be approved, which code cannot wait for: use queueTool, or leave it to the model. Nothing was done")
}

// AtOnce returns the result of a call that code waits for. It waits here for a delay that ends before the deadline.
// Other results that come later reach the conversation apart from the code, or the call fails.
func (e *Environment) AtOnce(ctx context.Context, deadline time.Time, name string, res tool.Result) tool.Result {
	switch w := res.Wait; {
	case w == nil:
		return res
	case w.Kind == tool.WaitDelay && w.For < time.Until(deadline):
		select {
		case <-e.Clock.After(w.For):
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

// Deadline returns the earliest deadline of lives; the zero time when none has a deadline.
func Deadline(lives ...context.Context) (first time.Time) {
	for _, life := range lives {
		if at, bounded := life.Deadline(); bounded && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
