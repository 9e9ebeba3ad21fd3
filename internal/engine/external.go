package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// InvokeTool calls a tool of the thread's agent outside of a run and gives its result (SPEC TOL-01). key makes the
// call's id, so that a repeat carries the same one; a new id when it is empty. An unknown thread is
// store.ErrNotFound, a terminated one store.ErrTerminated, an agent that is not ready a *NotReadyError, a tool
// that the agent does not have an *UnknownError.
func (e *Engine) InvokeTool(ctx context.Context, threadID, key, name string, args json.RawMessage) (tool.Result, error) {
	ctx, leave := e.attach(ctx, threadID)
	defer leave()
	x, err := e.external(ctx, threadID)
	if err != nil {
		return tool.Result{}, err
	}
	defer x.close()
	if _, err := x.knows(ctx, name); err != nil {
		return tool.Result{}, err
	}
	x.code.lines.Collect()
	res, err := x.host.Tools.InvokeTool(ctx, "call_"+keyed(threadID, key), name, args)
	if err != nil {
		return res, err
	}
	err = x.saveOutside(ctx)
	x.code.lines.End()
	res.Logs = x.code.lines.Collected()
	return res, err
}

// QueueTool has a tool called in the execution under way, or starts one, and does not wait (SPEC TOL-01). A repeat
// under the same key is called once. Errors are those of InvokeTool.
func (e *Engine) QueueTool(ctx context.Context, threadID, key, name string, args json.RawMessage) error {
	ctx, leave := e.attach(ctx, threadID)
	defer leave()
	x, err := e.external(ctx, threadID)
	if err != nil {
		return err
	}
	defer x.close()
	return x.host.Tools.QueueTool(ctx, keyed(threadID, key), name, args)
}

// NotifyParent queues a silent message on the parent of a thread (SPEC SUB-05); a repeat under the same key is
// queued once. store.ErrTerminated when the thread is terminated, ErrParentTerminated when its parent is.
func (e *Engine) NotifyParent(ctx context.Context, threadID, key, content string) error {
	t, st, err := e.living(ctx, threadID)
	if err != nil {
		return err
	}
	err = (&lifecycleOf{engine: e, thread: t, state: st}).NotifyParent(ctx, keyed(threadID, key), content)
	if errors.Is(err, store.ErrTerminated) {
		return ErrParentTerminated
	}
	return err
}

// ErrParentTerminated says that a message cannot reach the parent any more.
var ErrParentTerminated = errors.New("the parent of the thread is terminated and takes no more messages")

// statusTries bounds how often a status is written anew because the thread has changed meanwhile.
const statusTries = 20

// SetStatus changes what the registry of the parent shows of a thread (SPEC SUB-05). store.ErrTerminated when the
// thread is terminated: what the registry shows of it then stays.
func (e *Engine) SetStatus(ctx context.Context, threadID, status string) error {
	if err := checkStatus(status); err != nil {
		return err
	}
	for try := 1; ; try++ {
		t, st, err := e.living(ctx, threadID)
		if err != nil {
			return err
		}
		// Against the version: a termination in between must not be painted over.
		err = st.Apply(ctx, &store.UpdateThread{RegistryStatus: &status, ExpectVersion: &t.Version})
		if !errors.Is(err, store.ErrConflict) || try == statusTries {
			return err
		}
	}
}

// Stopping tells whether the run of a thread that is under way here is being ended.
func (e *Engine) Stopping(threadID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.active[threadID]
	return a != nil && a.cause != nil
}

// DefinitionNames lists the definitions of a namespace: those of kind "agent", "prompt" or "model" (SPEC AGT-07).
func (e *Engine) DefinitionNames(ctx context.Context, namespace, kind string) ([]string, error) {
	return e.opts.Definitions.Names(ctx, namespace, kind)
}

// Definition gives a definition of a namespace as plain JSON, without secrets; an *UnknownError when there is none.
func (e *Engine) Definition(ctx context.Context, namespace, kind, name string) (json.RawMessage, error) {
	return e.opts.Definitions.Load(ctx, namespace, kind, name)
}

// keySpace is where the keys of callers become ids.
var keySpace = uuid.MustParse("8b1f2c5e-5c0a-4f0e-9f0b-0d6f6a3c4e21")

// keyed makes a key out of what a caller chose, which may be anything; a new one when it is empty.
func keyed(threadID, key string) string {
	if key == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(keySpace, []byte(threadID+"\x00"+key)).String()
}

// RunCode runs code in the thread's sandbox in an isolate of its own (SPEC COD-01). Errors are those of
// InvokeTool, and that no sandbox could be had; all that went wrong within one is in the Result.
func (e *Engine) RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error) {
	ctx, leave := e.attach(ctx, threadID)
	defer leave()
	x, err := e.external(ctx, threadID)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer x.close()
	return x.host.Code.RunCode(ctx, req)
}

// outside makes an execution that is no run: its writes are not fenced.
func (e *Engine) external(ctx context.Context, threadID string) (*execution, error) {
	t, st, err := e.living(ctx, threadID)
	if err != nil {
		return nil, err
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, err
	}
	if _, err := e.threads.LoadEnv(ctx, t); err != nil {
		return nil, err
	}
	return e.newExecution(ctx, t, st, agent, ""), nil
}

// living opens a thread that is neither terminated nor retained.
func (e *Engine) living(ctx context.Context, threadID string) (*store.Thread, *thread.State, error) {
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return nil, nil, err
	}
	if t.TerminatedAt != 0 {
		return nil, nil, fmt.Errorf("%w: start a new thread to go on", store.ErrTerminated)
	}
	if t.RetainedAt != 0 {
		return nil, nil, store.ErrRetained
	}
	st, err := e.threads.Open(ctx, threadID)
	return t, st, err
}

// knows gives the side of the agent that has a tool of that name: an *UnknownError when none has.
func (x *execution) knows(ctx context.Context, name string) (*definition.Side, error) {
	set, side, err := x.offering(ctx, name)
	var f *failure
	if errors.As(err, &f) {
		return nil, &definition.NotReadyError{Reason: f.reason, Message: f.message}
	}
	if err != nil {
		return nil, err
	}
	if !set.Has(name) {
		if t, err := x.unlisted(ctx, name); t != nil || err != nil {
			return side, err
		}
		return nil, &definition.UnknownError{Message: fmt.Sprintf("the agent %s has no tool %q: %s", x.agent.Name, name, set.NamesFor(name))}
	}
	return side, nil
}

// offering gives the tools of the side that has one of that name: the one whose turn it is in a run, outside of one
// whichever has it, side a before side b. Where none has it, it is those of the side that was asked first.
func (x *execution) offering(ctx context.Context, name string) (*tool.Set, *definition.Side, error) {
	if c := x.callerIn(ctx); c != nil {
		set, err := x.builtFor(ctx, c.promptBroker)
		return set, c.side, err
	}
	side := x.side()
	set, err := x.built(ctx)
	if err != nil || set.Has(name) || x.turn != nil || !x.agent.Dual() {
		return set, side, err
	}
	other := x.agent.Other(side)
	x.use(other)
	theirs, err := x.built(ctx)
	if err != nil || theirs.Has(name) {
		return theirs, other, err
	}
	x.use(side)
	return set, side, nil
}
