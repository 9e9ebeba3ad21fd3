package engine

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// execution is the environment of tools and code during a run, the firing of an effect, or an external call. It has
// one isolate for definition code, which is opened when it is first needed (STA-08). Fields below mu are guarded by
// mu.
type execution struct {
	engine *Engine
	agent  *definition.Agent // nil when it could not be resolved; then there are no tools
	host   *tool.Host
	code   *codeHost
	edited atomic.Bool

	// turn is the turn of the run that the execution belongs to; nil outside of a run.
	turn *turn
	// completing holds the sides whose handlers are registered for the end of the session. Only the goroutine of the
	// run uses it.
	completing map[string]bool

	mu    sync.Mutex
	now   *definition.Side // the side whose turn it is; nil means side a
	tools *tool.Set        // the tools of that side that were built last
	// within is the prompt that is being called as a tool. path holds the names of the prompts that led to it, and
	// its own.
	within *definition.Side
	path   []string
}

// newExecution returns a new execution. When ctx ends, its code ends too.
func (e *Engine) newExecution(ctx context.Context, t *store.Thread, st *thread.State, agent *definition.Agent, runID string) *execution {
	x := &execution{engine: e, agent: agent}
	st = st.WithReader(x.reader)
	x.host = &tool.Host{Thread: t, State: st, RunID: runID, Threads: e.threads, Redact: func(text string) string { return e.opts.Redact(t.Namespace, text) }}
	if runID != "" {
		x.turn = newTurn(runID)
		x.host.Execution = x.turn
	}
	x.host.Family = &familyOf{execution: x}
	x.host.Effects = &effectsOf{engine: e, thread: t}
	x.host.Children = &childrenOf{engine: e, thread: t, state: st, agent: agent, side: x.side, runID: runID}
	x.host.Definitions = &definitionsOf{engine: e, namespace: t.Namespace}
	x.host.Handoffs = &handoffsOf{execution: x}
	x.host.Lifecycle = &lifecycleOf{engine: e, thread: t, state: st}
	x.host.Tools = &callerOf{execution: x}
	if agent != nil && agent.Memory != nil {
		x.host.Memory = &memoryOf{execution: x}
	}
	x.host.Progress = x.progress
	x.host.Session = scopes.New(scopes.Options{ID: runID, ThreadID: t.ID, Backend: st, Encode: func(v any) ([]byte, error) { return values.Serialized(v) }, Log: e.log})
	x.code = newCodeHost(ctx, e, t, poolOf(agent), code.NewState(x.host, func() { x.edited.Store(true) }))
	x.code.host, x.code.turn = x.host, x.turn
	x.code.lines = e.newLines(t, st, runID)
	x.host.Code = x.code
	if agent != nil {
		for _, s := range agent.Sides() {
			for _, h := range s.Hooks {
				x.code.addHook(s, h)
			}
			for i := range s.Tools {
				if t := &s.Tools[i]; t.HTTP == nil && t.MCP == nil {
					x.code.add(moduleOf(t), t.Module, timeoutOf(&t.Spec))
				}
			}
		}
		if h := x.messageHooks(); h != nil {
			x.host.State = st.WithHooks(h)
		}
	}
	if agent != nil && runID != "" {
		x.code.prefix = handlerPrefix(runID)
		for _, s := range []*definition.Side{agent.A, agent.B} {
			if s != nil && s.Handler != nil {
				x.code.add(handlerModule(s), s.Handler.Module, handlerTimeout(s))
			}
		}
		for _, p := range agent.Prompts {
			for i := 0; p.Side != nil && i < len(p.Side.Tools); i++ {
				x.code.add(moduleOf(&p.Side.Tools[i]), p.Side.Tools[i].Module, timeoutOf(&p.Side.Tools[i].Spec))
			}
		}
	}
	return x
}

// side returns the side whose turn it is; outside of a run that is side a. The execution must have an agent.
func (x *execution) side() *definition.Side {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.within != nil:
		return x.within
	case x.now == nil:
		return x.agent.A
	}
	return x.now
}

// reader returns who reads the variables of the thread: the code that runs in ctx, else the side whose turn it is.
func (x *execution) reader(ctx context.Context) thread.EnvReader {
	if x.agent == nil {
		return thread.EnvReader{Side: definition.SideA}
	}
	if c := x.callerIn(ctx); c != nil {
		return c.reader
	}
	x.mu.Lock()
	path := x.path
	x.mu.Unlock()
	return thread.EnvReader{Side: x.side().Name, Called: path}
}

// use records the side whose turn it is.
func (x *execution) use(s *definition.Side) {
	x.mu.Lock()
	x.now, x.tools = s, nil
	x.mu.Unlock()
	if x.turn != nil {
		x.turn.use(s)
	}
}

// frame records the called prompt that is at work; nil for none.
func (x *execution) frame(f *frame) {
	var within *definition.Side
	var path []string
	if f != nil {
		within, path = f.side, f.path
	}
	x.mu.Lock()
	x.within, x.path, x.tools = within, path, nil
	x.mu.Unlock()
	if x.turn != nil {
		x.turn.call(path)
	}
}

func (x *execution) close() { x.code.close() }

// takeEdited reports whether code has changed messages since the last call of takeEdited.
func (x *execution) takeEdited() bool { return x.edited.Swap(false) }

// definitionsOf implements reading the definitions of a namespace for tools.
type definitionsOf struct {
	engine    *Engine
	namespace string
}

func (d *definitionsOf) Names(ctx context.Context, kind string) ([]string, error) {
	return d.engine.opts.Definitions.Names(ctx, d.namespace, kind)
}

func (d *definitionsOf) Load(ctx context.Context, kind, name string) (json.RawMessage, error) {
	return d.engine.opts.Definitions.Load(ctx, d.namespace, kind, name)
}

// effectsOf implements the operations on the effects of a thread for tools.
type effectsOf struct {
	engine *Engine
	thread *store.Thread
}

func (f *effectsOf) Schedule(ctx context.Context, cause, name string, args json.RawMessage, delay time.Duration) (string, error) {
	depth := depthOfEffect(causationOf(ctx), delay)
	if limit := f.engine.opts.Limits.HookDepth; depth >= limit {
		return "", errors.New(effectTooDeep(limit))
	}
	f.engine.fault("effect.schedule.before")
	id, err := f.engine.opts.Effects.Schedule(ctx, f.thread, EffectRequest{Cause: cause, Name: name, Args: args, Delay: delay, HookDepth: depth})
	f.engine.fault("effect.schedule.after")
	return id, err
}

func (f *effectsOf) List(ctx context.Context, name string) ([]tool.ScheduledEffect, error) {
	list, err := f.engine.opts.Effects.List(ctx, f.thread, name)
	out := make([]tool.ScheduledEffect, 0, len(list))
	for _, s := range list {
		out = append(out, tool.ScheduledEffect(s))
	}
	return out, err
}

func (f *effectsOf) Remove(ctx context.Context, id string) (bool, error) {
	return f.engine.opts.Effects.Remove(ctx, f.thread, id)
}

// callerOf calls tools of the execution's agent for code.
type callerOf struct{ execution *execution }

func (c *callerOf) InvokeTool(ctx context.Context, id, name string, args json.RawMessage) (tool.Result, error) {
	x := c.execution
	if x.agent == nil {
		return tool.Failure("the thread's agent is not ready, so it has no tools"), nil
	}
	set, _, err := x.offering(ctx, name)
	if err != nil {
		return tool.Result{}, err
	}
	if set.Approved(name) {
		return unapproved(name), nil
	}
	if !set.Has(name) {
		if t, err := x.unlisted(ctx, name); err != nil {
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
		return onlyInRun(name), nil
	}
	if res.Handoff != "" {
		if err := x.host.State.Apply(ctx, handoffOp(res.Handoff, x.host.RunID, id)); err != nil {
			return tool.Result{}, err
		}
	}
	return x.engine.atOnce(ctx, deadline(ctx), name, res), nil
}

func (c *callerOf) QueueTool(ctx context.Context, key, name string, args json.RawMessage) error {
	x := c.execution
	queued := store.QueuedTool{Name: name, Arguments: args, HookDepth: causationOf(ctx).depth}
	if x.agent != nil {
		side, err := x.knows(ctx, name)
		if err != nil {
			return err
		}
		queued.Side = definition.ShortName(side)
	}
	payload, err := json.Marshal(queued)
	if err != nil {
		return err
	}
	return x.engine.store.Apply(ctx, x.host.Thread.ID, nil, &store.Enqueue{
		Item: store.InboxItem{Key: "tool:" + key, Kind: store.InboxTool, Payload: payload},
	})
}
