package codeexec

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// Execution is the environment of tools and code during a run, the firing of an effect, or an external call. It has
// one isolate for definition code, which is opened when it is first needed (STA-08). Fields below mu are guarded by
// mu.
type Execution struct {
	Env    *Environment
	Agent  *definition.Agent // nil when it could not be resolved; then there are no tools
	Host   *tool.Host
	Code   *Host
	State  *code.State
	edited atomic.Bool

	// Turn is the turn of the run that the execution belongs to; nil outside of a run.
	Turn *Turn
	// Completing holds the sides whose handlers are registered for the end of the session. Only the goroutine of the
	// run uses it.
	Completing map[string]bool

	mu    sync.Mutex
	now   *definition.Side // the side whose turn it is; nil means side a
	tools *tool.Set        // the tools of that side that were built last
	// within is the prompt that is being called as a tool. path holds the names of the prompts that led to it, and
	// its own.
	within *definition.Side
	path   []string
}

// New returns a new execution. runID is "" outside of a run. When ctx ends, its code ends too. The caller sets the fields of
// Host that are not its code's or its tools' before it uses the execution.
func (e *Environment) New(ctx context.Context, t *store.Thread, st *thread.State, agent *definition.Agent, runID string, lines *codelog.Lines) *Execution {
	x := &Execution{Env: e, Agent: agent}
	st = st.WithReader(x.reader)
	x.Host = &tool.Host{Thread: t, State: st, RunID: runID, Threads: e.Threads, Redact: func(text string) string { return e.Redact(t.Namespace, text) }}
	if runID != "" {
		x.Turn = newTurn(runID)
		x.Host.Execution = x.Turn
	}
	x.Host.Tools = &callerOf{execution: x}
	x.Host.Progress = x.progress
	x.State = code.NewState(x.Host, func() { x.edited.Store(true) })
	x.Code = NewHost(ctx, e, t, poolOf(agent), x.State)
	x.Host.Session = scopes.New(scopes.Options{
		ID: runID, ThreadID: t.ID, Backend: st, Memory: e.Memory.Open(t.Namespace), Encode: func(v any) ([]byte, error) { return values.Serialized(v) }, Log: e.Log,
	})
	x.Code.host, x.Code.Lines = x.Host, lines
	if x.Turn != nil {
		x.Code.reads = x.Turn.noteHistoryUse
	}
	x.Host.Code = x.Code
	if agent != nil {
		for _, s := range agent.Sides() {
			x.addTools(s)
		}
	}
	if agent != nil && runID != "" {
		for _, p := range agent.Prompts {
			if p.Side != nil {
				x.addTools(p.Side)
			}
		}
	}
	return x
}

// addTools adds the modules of a side's tools in code.
func (x *Execution) addTools(s *definition.Side) {
	for i := range s.Tools {
		if t := &s.Tools[i]; t.HTTP == nil && t.MCP == nil {
			x.Code.Add(moduleOf(t), t.Module, TimeoutOf(&t.Spec))
		}
	}
}

// Side returns the side whose turn it is; outside of a run that is side a. The execution must have an agent.
func (x *Execution) Side() *definition.Side {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.within != nil:
		return x.within
	case x.now == nil:
		return x.Agent.A
	}
	return x.now
}

// reader returns who reads the variables of the thread: the code that runs in ctx, else the side whose turn it is.
func (x *Execution) reader(ctx context.Context) thread.EnvReader {
	if x.Agent == nil {
		return thread.EnvReader{Side: definition.SideA}
	}
	if c := x.callerIn(ctx); c != nil {
		return c.Reader
	}
	x.mu.Lock()
	path := x.path
	x.mu.Unlock()
	return thread.EnvReader{Side: x.Side().Name, Called: path}
}

// Use records the side whose turn it is.
func (x *Execution) Use(s *definition.Side) {
	x.mu.Lock()
	x.now, x.tools = s, nil
	x.mu.Unlock()
	if x.Turn != nil {
		x.Turn.use(s)
	}
}

// ActWithin records the called prompt that is at work, and the names of the prompts that led to it and its own; nil for none.
func (x *Execution) ActWithin(within *definition.Side, path []string) {
	x.mu.Lock()
	x.within, x.path, x.tools = within, path, nil
	x.mu.Unlock()
	if x.Turn != nil {
		x.Turn.call(path)
	}
}

// Close ends the code of the execution and its session, and releases its sandbox.
func (x *Execution) Close() { x.Leave().Close() }

// Leave is Close that does not end the session, and returns it.
func (x *Execution) Leave() *scopes.Session {
	x.Code.Close()
	return x.Host.Session
}

// TakeEdited reports whether code has changed messages since the last call of TakeEdited.
func (x *Execution) TakeEdited() bool { return x.edited.Swap(false) }

// callerOf calls tools of the execution's agent for code.
type callerOf struct{ execution *Execution }

func (c *callerOf) InvokeTool(ctx context.Context, id, name string, args json.RawMessage) (tool.Result, error) {
	x := c.execution
	if x.Agent == nil {
		return tool.Failure("the thread's agent is not ready, so it has no tools"), nil
	}
	set, _, err := x.toolsOffering(ctx, name)
	if err != nil {
		return tool.Result{}, err
	}
	if set.Approved(name) {
		return UnapprovedResult(name), nil
	}
	if !set.Has(name) {
		if t, err := x.UnlistedTool(ctx, name); err != nil {
			return tool.Result{}, err
		} else if t != nil {
			set = set.With(t)
		}
	}
	res := set.Call(ctx, tool.Call{ID: id, Name: name, Arguments: args})
	if res.Prompt != nil {
		if c := x.callerIn(ctx); c != nil {
			return c.ask(ctx, id, name, args, res.Prompt)
		}
		return onlyInRunResult(name), nil
	}
	if res.Handoff != "" {
		if err := x.Host.State.Apply(ctx, HandoffOp(res.Handoff, x.Host.RunID, id)); err != nil {
			return tool.Result{}, err
		}
	}
	return x.Env.AtOnce(ctx, Deadline(ctx), name, res), nil
}

func (c *callerOf) QueueTool(ctx context.Context, key, name string, args json.RawMessage) error {
	x := c.execution
	queued := store.QueuedTool{Name: name, Arguments: args, HookDepth: causation.FromContext(ctx).Depth}
	if x.Agent != nil {
		side, err := x.SideOfTool(ctx, name)
		if err != nil {
			return err
		}
		queued.Side = definition.ShortName(side)
	}
	payload, err := json.Marshal(queued)
	if err != nil {
		return err
	}
	return x.Env.Store.Apply(ctx, x.Host.Thread.ID, nil, &store.Enqueue{
		Item: store.InboxItem{Key: "tool:" + key, Kind: store.InboxTool, Payload: payload}, Bounded: true,
	})
}
