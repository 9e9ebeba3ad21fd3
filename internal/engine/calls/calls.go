// Package calls makes the tool calls of a step, one after another or at once, and serves the prompts that their code asks for.
package calls

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Step holds what the calls of a step have in common: the tools, the decisions on calls that needed approval, and whether a crash may
// have interrupted the calls before.
type Step struct {
	Set     *tool.Set
	Decided map[string]store.Approval
	Repeat  bool
	// Broker is where the code of these calls asks for prompts; nil when it cannot. Code holds the contexts of code
	// that waits for the calls and cannot be parked.
	Broker *codeexec.Broker
	Code   []context.Context

	Thread *store.Thread
	Env    *codeexec.Environment
	Clock  clock.PassiveClock
	Log    logr.Logger
	// Causation returns a context that says how many hooks led to the calls.
	Causation func(ctx context.Context) context.Context
	// ForCode calls a prompt for code, on the goroutine of the run. An error ends the run.
	ForCode func(ctx context.Context, a *codeexec.Ask) (tool.Result, error)
	// Fault marks a point around a call, for crash tests.
	Fault func(point string)
}

// fault marks a point around a call, for crash tests.
func (how *Step) fault(point string) { how.Fault(point) }

// Concurrently makes calls concurrently, at most limit of them at a time. It passes their outcomes to prompted, which executes the prompts
// that they ask for, and then to record, in the order of the calls.
func (how *Step) Concurrently(ctx context.Context, calls []store.ToolCall, limit int, prompted func(store.ToolCall, Outcome) (Outcome, error), record func(store.ToolCall, Outcome) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	over := false
	defer func() {
		if !over { // cancel before the wait: a call whose result is no longer wanted must not hold up the run
			cancel()
		} // work that continues after an answer may outlive the step
	}()
	slots := make(chan struct{}, limit)
	results := make([]chan Outcome, len(calls))
	for i := range calls {
		results[i] = make(chan Outcome, 1)
	}
	group.Go(func() {
		for i, call := range calls {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				results[i] <- how.call(ctx, call)
			})
		}
	})
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	for i, call := range calls {
		o, err := serveUntil(ctx, how, results[i])
		if err != nil {
			return err
		}
		if o.Result.Prompt != nil {
			if _, err := serveUntil(ctx, how, all); err != nil { // a called prompt changes fields of the run that the other calls read
				return err
			}
			if o, err = prompted(call, o); err != nil {
				return err
			}
		}
		if err := record(call, o); err != nil {
			return err
		}
	}
	over = true
	return nil
}

// Outcome is the outcome of one call.
type Outcome struct {
	Result   tool.Result
	Duration int64 // milliseconds
	Panicked bool
}

// call makes one call. A call that needed approval is made as it was decided. It may run on a goroutine of its own.
func (how *Step) call(ctx context.Context, call store.ToolCall) (o Outcome) {
	if ctx.Err() != nil {
		return o
	}
	start := how.Clock.Now()
	defer func() {
		o.Duration = how.Clock.Since(start).Milliseconds()
		if p := recover(); p != nil {
			how.Log.Error(fmt.Errorf("panic: %v", p), "a tool failed because the engine panicked", "tool", call.Name, "stack", string(debug.Stack()))
			o.Panicked = true
		}
	}()
	if d, ok := how.Decided[call.ID]; ok {
		if !d.Approved {
			o.Result = approval.Refusal(&d)
			return o
		}
		if d.Arguments != nil {
			call.Arguments = string(d.Arguments)
		}
	}
	if refused := how.refuse(call); refused != nil {
		o.Result = *refused
		return o
	}
	how.fault("call.before")
	ctx, over := membudget.Part(ctx) // what the tool answers is part of the conversation afterwards
	defer over()
	ctx, observed := runtrace.Call(ctx, how.Clock, how.Thread, call, how.Set.Has(call.Name))
	defer func() { observed(&o.Result, o.Panicked) }()
	calling, done := codeexec.WithLives(ctx, how.Code)
	defer done()
	o.Result = how.Set.Call(how.Broker.WithCall(how.Causation(calling), call, how.Repeat), tool.Call{ID: call.ID, Name: call.Name, Arguments: json.RawMessage(call.Arguments), Repeat: how.Repeat})
	if len(how.Code) > 0 {
		o.Result = how.Env.AtOnce(calling, codeexec.Deadline(how.Code...), call.Name, o.Result)
	}
	how.fault("call.after")
	return o
}

// CallAndServe makes one call, and serves its code in the meantime. An error ends the run.
func (how *Step) CallAndServe(ctx context.Context, call store.ToolCall) (o Outcome, err error) {
	if how.Broker == nil {
		return how.call(ctx, call), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	done, over := make(chan Outcome, 1), false
	defer func() {
		if !over { // the call must not outlive the step; work that continues after an answer may
			cancel()
			<-done
		}
	}()
	go func() { done <- how.call(ctx, call) }()
	o, err = serveUntil(ctx, how, done)
	over = err == nil
	return o, err
}

// serveUntil waits for a value from until. In the meantime it calls the prompts that code asks for.
func serveUntil[T any](ctx context.Context, how *Step, until <-chan T) (got T, err error) {
	var asks <-chan *codeexec.Ask
	if d := how.Broker; d != nil {
		asks = d.Asks
	}
	for {
		select {
		case got = <-until:
			return got, nil
		case a := <-asks:
			res, err := how.ForCode(ctx, a)
			if err != nil {
				return got, err
			}
			a.Answer <- res
		}
	}
}

// refuse returns the result of a call that is not made, or nil for a call that is to be made. A call for which code waits is not made
// once that code has ended, nor when it needs an approval.
func (how *Step) refuse(call store.ToolCall) *tool.Result {
	for _, life := range how.Code {
		if life.Err() != nil {
			res := tool.Failure("the call was not made: the code that waits for it has ended")
			return &res
		}
	}
	if len(how.Code) > 0 && how.Set.NeedsApproval(call.Name, json.RawMessage(call.Arguments)) != nil {
		res := codeexec.UnapprovedResult(call.Name)
		return &res
	}
	return nil
}
