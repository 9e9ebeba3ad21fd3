package executions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// InvokeTool calls a tool of the thread's agent outside of a run and returns its result (TOL-01). key determines the id
// of the call, so that a repeat has the same id. With an empty key the call gets a new id. Errors:
//   - store.ErrNotFound for an unknown thread
//   - store.ErrTerminated for a terminated thread
//   - a *NotReadyError for an agent that is not ready
//   - an *UnknownError for a tool that the agent does not have
func (s *Service) InvokeTool(ctx context.Context, threadID, key, name string, args json.RawMessage) (tool.Result, error) {
	ctx, leave := s.opts.Active.Attach(ctx, threadID)
	defer leave()
	x, err := s.External(ctx, threadID)
	if err != nil {
		return tool.Result{}, err
	}
	defer x.Close()
	if _, err := x.SideOfTool(ctx, name); err != nil {
		return tool.Result{}, err
	}
	x.Code.Lines.Collect()
	res, err := x.Host.Tools.InvokeTool(ctx, "call_"+runlog.KeyFor(threadID, key), name, args)
	if err != nil {
		return res, err
	}
	err = x.SaveExternal(ctx)
	x.Code.Lines.End()
	res.Logs = x.Code.Lines.Collected()
	return res, err
}

// QueueTool queues a call of a tool and does not wait for it (TOL-01). The run under way makes the call, or a new run
// starts. A repeat under the same key is called once. It returns the same errors as InvokeTool.
func (s *Service) QueueTool(ctx context.Context, threadID, key, name string, args json.RawMessage) error {
	ctx, leave := s.opts.Active.Attach(ctx, threadID)
	defer leave()
	x, err := s.External(ctx, threadID)
	if err != nil {
		return err
	}
	defer x.Close()
	return x.Host.Tools.QueueTool(ctx, runlog.KeyFor(threadID, key), name, args)
}

// NotifyParent queues a silent message on the parent of a thread (SUB-05). A repeat under the same key is queued
// once. It returns store.ErrTerminated when the thread is terminated, and ErrParentTerminated when its parent is, or was
// deleted.
func (s *Service) NotifyParent(ctx context.Context, threadID, key, content string) error {
	t, st, err := s.LivingThread(ctx, threadID)
	if err != nil {
		return err
	}
	err = (&lifecycleOf{service: s, thread: t, state: st}).NotifyParent(ctx, runlog.KeyFor(threadID, key), content)
	if errors.Is(err, store.ErrTerminated) {
		return ErrParentTerminated
	}
	return err
}

// ErrParentTerminated reports that the parent of a thread takes no more messages.
var ErrParentTerminated = errors.New("the parent of the thread is terminated or deleted, and takes no more messages")

// statusTries bounds how often SetStatus tries again after the thread has changed concurrently.
const statusTries = 20

// SetStatus changes the status that the parent's registry shows for a thread (SUB-05). It returns store.ErrTerminated
// when the thread is terminated. The registry then keeps what it shows.
func (s *Service) SetStatus(ctx context.Context, threadID, status string) error {
	if err := checkStatus(status); err != nil {
		return err
	}
	for try := 1; ; try++ {
		t, st, err := s.LivingThread(ctx, threadID)
		if err != nil {
			return err
		}
		// Expect the version, so that a concurrent termination is not overwritten.
		err = st.Apply(ctx, &store.UpdateThread{RegistryStatus: &status, ExpectVersion: &t.Version})
		if !errors.Is(err, store.ErrConflict) || try == statusTries {
			return err
		}
	}
}

// RunCode runs code in the thread's sandbox, in an isolate of its own (COD-01). It returns the same errors as
// InvokeTool, and an error when no sandbox is available. Everything that goes wrong within a sandbox is in the
// Result.
func (s *Service) RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error) {
	ctx, leave := s.opts.Active.Attach(ctx, threadID)
	defer leave()
	x, err := s.External(ctx, threadID)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer x.Close()
	return x.Host.Code.RunCode(ctx, req)
}

// External returns an execution that is not part of a run, for calls of code and tools through the API. A run may be under way
// meanwhile: the call has no lease, so its writes are not fenced. The caller attaches the call to the thread, and saves
// what code has changed. WithExternal is External for a hook, and does both. AtRest returns an execution for hooks that are called
// through the inbox: its caller holds the lease, and its writes are fenced with it.
func (s *Service) External(ctx context.Context, threadID string) (*codeexec.Execution, error) {
	t, st, err := s.LivingThread(ctx, threadID)
	if err != nil {
		return nil, err
	}
	agent, err := s.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, err
	}
	if _, err := s.opts.Threads.LoadEnv(ctx, t); err != nil {
		return nil, err
	}
	return s.New(ctx, t, st, agent, ""), nil
}

// LivingThread returns a thread that is neither terminated nor retained, and its opened state.
func (s *Service) LivingThread(ctx context.Context, threadID string) (*store.Thread, *thread.State, error) {
	t, err := s.opts.Store.Thread(ctx, threadID)
	if err != nil {
		return nil, nil, err
	}
	if t.TerminatedAt != 0 || t.Deleting {
		return nil, nil, fmt.Errorf("%w: start a new thread to go on", store.ErrTerminated)
	}
	if t.RetainedAt != 0 {
		return nil, nil, store.ErrRetained
	}
	return t, s.opts.Threads.StateOf(t), nil
}
