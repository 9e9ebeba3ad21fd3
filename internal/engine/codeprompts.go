package engine

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// openBroker lets the code of calls ask for prompts until shut is called. It returns nil when the agent has no
// prompts to call, or the run has no code.
func (r *run) openBroker() (d *codeexec.Broker, shut func()) {
	if r.code.Exec == nil || len(r.Agent.Prompts) == 0 {
		return nil, func() {}
	}
	d = &codeexec.Broker{Execution: r.code.Exec, Side: r.Side(), Reader: r.Reader(), Asks: make(chan *codeexec.Ask), Closed: make(chan struct{})}
	if r.Frame != nil {
		d.Within = r.Frame.Side
	}
	return d, func() { close(d.Closed) }
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
func serving[T any](ctx context.Context, r *run, d *codeexec.Broker, until <-chan T) (got T, err error) {
	var asks <-chan *codeexec.Ask
	if d != nil {
		asks = d.Asks
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
			a.Answer <- res
		}
	}
}

// callForCode calls a prompt for code, on the goroutine of the run. An error ends the run.
func (r *run) callForCode(ctx context.Context, a *codeexec.Ask) (tool.Result, error) {
	if a.Life.Err() != nil {
		return tool.Result{}, nil // nobody waits for the result any more
	}
	res, err := r.callPrompt(ctx, a.Call, a.Prompt, a.Repeat, a)
	r.code.BeginTurn(r.conv) // code reads the state of the run itself again
	return res, err
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
		res := codeexec.Unapproved(call.Name)
		return &res
	}
	return nil
}
