// Package run executes the runs of threads. A run is a loop over the log: package plan decides what comes next, a feature does it, and a
// transaction records it before the loop asks again. A file is a feature of the loop: intake of the inbox, requests to models, tool calls,
// called prompts, handlers, the end of a turn, a stop.
package run

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/engine/executions"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/quota"
	"github.com/skein-dev/skein/internal/engine/request"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/runcode"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/thread"
)

// Options of a Service. All are required but Memory, where nil is without limit.
type Options struct {
	Store       store.Store
	Threads     *thread.Service
	Definitions ports.Definitions
	Models      model.Factory
	Executions  *executions.Service
	Env         *codeexec.Environment
	Hooks       *hooks.Service
	Stops       *stop.Service
	Quotas      *quota.Quotas
	PostRun     *postrun.Worker
	Queue       *schedule.Queue
	// Recent keeps the conversations of threads whose runs have ended.
	Recent *transcript.Cache
	// Active are the threads that this replica works for at present.
	Active *activethreads.Threads
	// Memory is what conversations and values are drawn from.
	Memory *membudget.Budget
	Clock  clock.WithTickerAndDelayedExecution
	Log    logr.Logger
	Limits Limits
	// CompactionTimeout bounds the call of a model that sums up older messages.
	CompactionTimeout time.Duration
	// Life ends with the process. Work that continues after the context of its run has ended uses it.
	Life context.Context
	// Now returns the time in microseconds since 1970.
	Now func() int64
	// Expect makes sure that threads whose waits end at a time, in microseconds since 1970, are looked at then. It ignores 0.
	Expect func(at int64)
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Interrupted returns the error with which a run ends here before its next step, because the replica prepares to end.
	Interrupted func() error
	// Fault is called at named points, for crash tests.
	Fault func(point string)
}

// Limits of runs. The engine's options say what they mean.
type Limits struct {
	ToolResultBytes, ContextMessages, PromptDepth, ParallelCalls int
}

// Service executes runs. It is safe for concurrent use, by one caller for each thread.
type Service struct{ opts Options }

// New returns a service.
func New(o Options) *Service { return &Service{opts: o} }

// Work is a run to execute, and what was read of its thread.
type Work struct {
	*store.Work
	Fence  *store.Fence
	Active *activethreads.Active
	Agent  *definition.Agent
	// Going is the run that is under way or parked, and is resumed. nil begins a new one.
	Going *store.Run
	// Items are the inbox items that the run takes in first, and Delayed the calls of hooks that it makes later.
	Items, Delayed []store.InboxItem
}

// Execute begins or resumes a run, and executes it until it ends, waits or is interrupted. more reports that the thread has more work. The
// caller holds the lease of the thread.
func (s *Service) Execute(ctx context.Context, w Work) (more bool, err error) {
	t := w.Thread
	r := s.newRun(t, w.Fence, w.Active)
	r.takeOver(t, w.Agent)
	if w.Going != nil {
		r.record, r.resumed = *w.Going, true
		if r.State, err = runstate.Read(w.Going); err != nil {
			return false, err
		}
	} else {
		r.record = store.Run{ID: runlog.NewRunID(), ThreadID: t.ID, Agent: t.Agent, Status: store.RunRunning, StartedAt: s.now()}
		r.State.Telemetry = runtrace.Begin(w.Items)
		r.State.First = w.Run == nil && w.Agent.HasHandlers()
		r.known = t.LastSeq // a resumed run has yet to read the inbox
	}
	ctx = r.State.Telemetry.With(ctx)
	setLogValues(r, r.State.Telemetry)
	if err := membudget.From(ctx).Draw(ctx, costOf(w.Inbox)); err != nil {
		return false, err
	}
	if r.conv = s.opts.Recent.Take(w.Work); r.conv == nil {
		if r.conv, err = transcript.Load(ctx, s.opts.Store, t, s.opts.Limits.ContextMessages); err != nil {
			return false, err
		}
	} else if err := r.conv.Draw(ctx); err != nil {
		return false, err
	}
	if r.resumed {
		if err := r.recallEnds(ctx, r.conv); err != nil {
			return false, err
		}
	}
	r.seen = t.LastSeq
	s.opts.Active.SetRun(w.Active, r.record.ID)
	s.opts.PostRun.Add(w.Active.TakeEndedRuns()...) // the lease now belongs to the next run
	err = r.execute(ctx, append(w.Delayed, w.Items...))
	if err == nil && r.record.Status.Ended() && r.known != 0 {
		s.opts.Recent.Keep(t, r.conv, r.known, s.opts.Limits.ContextMessages)
	}
	if err == nil && r.hooks.LeavesOverdue() {
		return true, nil
	}
	// Items that came since have marked the thread dirty. If the notification is late or was lost, releasing the
	// lease sends another one.
	return r.record.Status.Ended() && (w.Active.Dirty.Load() || r.withholds || len(r.compactor.Pending()) > 0), err
}

// costOf returns about how many bytes inbox items take: their texts, and the texts of the messages that they become. It stays below what
// any namespace may have, since what waits is bounded (store.MaxWaitingBytes): a thread that could not draw it would never run again.
func costOf(items []store.InboxItem) (n int64) {
	for _, item := range items {
		n += 2 * int64(len(item.Payload))
	}
	return n
}

// newRun returns a run of a thread that is not begun or resumed yet.
func (s *Service) newRun(t *store.Thread, fence *store.Fence, active *activethreads.Active) *run {
	o := &s.opts
	r := &run{service: s, Role: role.Role{Thread: t}, fence: fence, active: active}
	setLogValues(r, telemetry.Run{})
	r.code = runcode.New(runcode.Options{Executions: o.Executions, Env: o.Env, Threads: o.Threads, Log: &r.log, Fence: fence}, &r.Role, &r.record)
	r.hooks = hooks.NewRun(o.Hooks, hooksPort{r}, &r.log)
	r.requests = request.NewMaker(request.Options{Threads: o.Threads, Definitions: o.Definitions, Models: o.Models, Log: &r.log, Redact: o.Redact, State: r.code.State}, &r.Role)
	r.streams = deltas.Options{Store: o.Store, Clock: o.Clock, Fence: fence, Run: &r.record, Fault: o.Fault}
	r.compactor = compaction.New(compaction.Options{
		Port: compactionPort{r}, Role: &r.Role, Requests: r.requests, Store: o.Store, Log: &r.log, Timeout: o.CompactionTimeout, Now: o.Now,
	})
	return r
}

// setLogValues makes the log lines of the run, and those about its thread, say what they are about.
func setLogValues(r *run, span telemetry.Run) {
	t := r.Thread
	r.active.About = append(telemetry.OfThread(t.Namespace, t.Name, t.ID), span.LogValues()...)
	r.log = r.service.opts.Log.WithValues(r.active.About...)
}

func (s *Service) now() int64 { return s.opts.Now() }

// fault marks a point around a durable write or an outside call, for crash tests.
func (s *Service) fault(point string) { s.opts.Fault(point) }

// checkInterrupted returns the error with which the run ends here when the replica prepares to end, and nil when it may begin its next step.
// Code that waits for the step is under way, so it may go on.
func (r *run) checkInterrupted() error {
	if r.CodeWaits() {
		return nil
	}
	return r.service.opts.Interrupted()
}
