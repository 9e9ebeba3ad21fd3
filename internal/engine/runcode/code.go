// Package runcode has the code of a run: its execution, which is created when it is first needed, the tools of the acting side, and
// what outlives an execution that a handoff ends.
package runcode

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/scopes"
	"github.com/skein-dev/skein/internal/tool"
)

// Options of a Code.
type Options struct {
	Executions *executions.Service
	Env        *codeexec.Environment
	Threads    *thread.Service
	Log        *logr.Logger // of the run
	Fence      *store.Fence
}

// Code is the code of one run. It belongs to the goroutine that executes the run.
type Code struct {
	opts Options
	role *role.Role
	run  *store.Run // the row of the run

	// Life is the context of the run, with which its code ends.
	Life context.Context
	// Exec is created when it is first needed.
	Exec *codeexec.Execution
	// Tools are the tools of the acting side; nil when they must be built.
	Tools *tool.Set
	// Lines receives the log lines of the run's code; nil before there was any code.
	Lines *codelog.Lines
	// Saved is the state of the session of a resumed run, as it was saved.
	Saved json.RawMessage
	// EnvLoaded reports that the variables of the thread have been resolved.
	EnvLoaded bool
	// session is the session of an execution that a handoff has ended. It belongs to the run, not to the agent.
	session *scopes.Session
	// edited reports that code of that execution has changed messages that have not been read again.
	edited bool
}

// New returns the code of a run. r says who acts, and run is its row.
func New(o Options, r *role.Role, run *store.Run) *Code { return &Code{opts: o, role: r, run: run} }

// Close ends the execution and the session, if there are any.
func (c *Code) Close() {
	if c.Exec != nil {
		c.Exec.Close()
	}
	c.session.Close()
}

// Forget drops and closes an execution whose sandbox was lost. A session that a handoff has carried over continues.
func (c *Code) Forget() {
	if session := c.Exec.Leave(); session != c.session {
		session.Close()
	}
	c.Exec, c.Tools = nil, nil
}

// TakeEdited reports whether code has changed messages since the last call.
func (c *Code) TakeEdited() bool {
	edited := c.edited || c.Exec != nil && c.Exec.TakeEdited()
	c.edited = false
	return edited
}

// BuildTools builds the current tools of the side. It does nothing when they are built and cannot have changed.
func (c *Code) BuildTools(ctx context.Context) (err error) {
	if c.Tools != nil && (c.Exec == nil || !c.Exec.ToolsChange()) {
		if changed, err := c.skillsChanged(ctx); !changed || err != nil {
			return err
		}
	}
	if !hasTools(c.role.Side()) {
		c.Tools, err = tool.NewSet()
		return err
	}
	x, err := c.Execution(ctx)
	if err != nil {
		return err
	}
	c.Tools, err = x.BuildTools(ctx)
	return err
}

// Execution returns the execution of the run's code, and creates it when it is first needed. The variables are
// resolved before any code runs.
func (c *Code) Execution(ctx context.Context) (*codeexec.Execution, error) {
	if c.Exec != nil {
		return c.Exec, nil
	}
	if !c.EnvLoaded {
		if _, err := c.LoadEnv(ctx); err != nil {
			return nil, err
		}
	}
	st, err := c.State(ctx)
	if err != nil {
		return nil, err
	}
	c.Exec = c.opts.Executions.New(c.Life, c.role.Thread, st, c.role.Agent, c.run.ID)
	c.Exec.Host.Handoffs = c.opts.Executions.Handoffs(c.role.Thread, c.role.Agent, c.role.State.Handoffs)
	if c.Lines == nil {
		c.Lines = c.Exec.Code.Lines
	}
	c.Exec.Code.Lines = c.Lines // the limits on log lines apply to the whole run
	if c.session != nil {
		c.Exec.Host.Session = c.session
	} else if err := c.Exec.Host.Session.Restore(ctx, c.Saved); err != nil {
		var busy *membudget.BusyError
		if errors.As(err, &busy) {
			c.Exec.Close()
			c.Exec = nil
			return nil, err
		}
		c.opts.Log.Error(err, "cannot restore the state of the session: the run continues without it", "run", c.run.ID)
	}
	if c.Exec.Turn != nil { // nil while no run is under way
		c.Exec.Turn.Resume(c.role.State.Turn)
	}
	c.UseSide()
	c.restoreContext(c.Exec)
	return c.Exec, nil
}

// hasTools reports whether a side has any tools at all.
func hasTools(s *definition.Side) bool {
	return len(s.Prompt.Spec.Tools) > 0 || len(s.Prompt.Skills) > 0 || s.Spec.SessionStop != nil || s.Spec.SessionFail != nil || s.Spec.SessionStatus != nil
}

// State returns the thread's state with the fence of the run.
func (c *Code) State(ctx context.Context) (*thread.State, error) {
	st, err := c.opts.Threads.Open(ctx, c.role.Thread.ID)
	if err != nil {
		return nil, err
	}
	return st.WithFence(c.opts.Fence).WithReader(func(context.Context) thread.EnvReader { return c.role.Reader() }), nil
}

// LoadEnv resolves the thread's variables and returns the names of the required ones that are missing. A variable that
// cannot be read is a *failure.Error.
func (c *Code) LoadEnv(ctx context.Context) (missing []string, err error) {
	missing, err = c.opts.Threads.LoadEnv(ctx, c.role.Thread)
	c.EnvLoaded = err == nil
	var unreadable *thread.EnvUnreadableError
	if errors.As(err, &unreadable) {
		return nil, failure.New(skeinv1.ReasonEnvUnreadable, "%s", unreadable.Error())
	}
	return missing, err
}

// Session returns the session of the run, or nil if no code has run yet.
func (c *Code) Session() *scopes.Session {
	if c.Exec != nil {
		return c.Exec.Host.Session
	}
	return c.session
}

// OwesState reports whether code has changed state that is not saved.
func (c *Code) OwesState() bool {
	session := c.Session()
	return session != nil && !session.Save(false).Empty()
}

// Leave closes the isolate of the previous agent, because the next one has code of its own. The session
// continues, and so does the part of state.context that can be carried over.
func (c *Code) Leave(ctx context.Context) error {
	if c.Exec == nil {
		return nil
	}
	wait, cancel := context.WithTimeoutCause(ctx, codeexec.AfterResponse, codeexec.ErrSlowWork)
	defer cancel()
	if err := c.Exec.Host.Session.Wait(wait); err != nil && !errors.Is(err, codeexec.ErrSlowWork) {
		return err
	}
	c.SnapshotContext(ctx)
	c.edited = c.Exec.TakeEdited() || c.edited
	c.session = c.Exec.Leave()
	c.Exec = nil
	return nil
}

// skillsChanged reports whether the active skills are not those that the tools of the side were made for.
func (c *Code) skillsChanged(ctx context.Context) (bool, error) {
	now, err := c.opts.Env.ActiveSkills(ctx, c.role.Side(), c.role.Thread.ID)
	return err == nil && !slices.Equal(now, c.Tools.Skills()), err
}

// UseSide discards the tools, so that they are built anew, and tells code whose turn it is.
func (c *Code) UseSide() {
	c.Tools = nil
	if c.Exec != nil {
		c.Exec.Use(c.role.Side())
	}
}

// Reach ensures that hooks can be called after the end of the run: in the run's isolate while it is open, else in
// one that does not end with the run. For hooks that are delayed it waits for that isolate as long as a thread at rest would.
func (c *Code) Reach(ctx context.Context, delayed bool) error {
	if !c.role.Agent.HasHooks() {
		return nil // the hook calls are dropped
	}
	if c.Exec == nil || c.Life.Err() != nil || !c.Exec.Code.HasIsolate() {
		if c.Life = ctx; c.Exec != nil {
			c.session = c.Exec.Leave()
			c.Exec = nil
		}
	}
	x, err := c.Execution(ctx)
	if err != nil || !delayed || x.Code.HasIsolate() {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, hooks.RetryWait)
	defer cancel()
	_, _, err = x.Code.Isolate(wait, false)
	return err
}
