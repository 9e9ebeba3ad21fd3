package apiserver

import (
	"context"
	"errors"
	"math"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// runEngine is the part of the engine that knows of runs under way.
type runEngine interface {
	// CancelRun ends one run of a thread (RUN-10).
	CancelRun(ctx context.Context, threadID, runID, reason string) error
	Stopping(threadID string) bool
}

// runHandler serves the runs of a thread and what they used.
type runHandler struct {
	threads *thread.Service
	engine  runEngine
}

// listRuns answers GET runs, newest first.
func (h *runHandler) listRuns(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit := q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	offset := q.number("offset", 0, 0, math.MaxInt32)
	if err := q.check(); err != nil {
		return err
	}
	runs, err := h.threads.Store().Runs(c.r.Context(), c.row.ID, limit+1, offset)
	if err != nil {
		return err
	}
	page, more := cut(runs, limit, 0)
	list := runtimev1.RunList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRunList), Runs: make([]runtimev1.Run, len(page)), HasMore: more}
	for i := range page {
		list.Runs[i] = runOf(&page[i])
	}
	return c.writeJSON(http.StatusOK, list)
}

// getRun answers GET runs/{id}.
func (h *runHandler) getRun(c *call) error {
	run, err := h.threads.Store().Run(c.r.Context(), c.row.ID, c.rest())
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.name, "thread %q has no run %q", c.name, c.rest())
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runOf(run))
}

// cancelRun answers POST runs/{id}/cancel: it ends this run and nothing else (RUN-10).
func (h *runHandler) cancelRun(c *call) error {
	if len(c.path) != 2 || c.path[1] != runtimev1.ActionCancel {
		return status.NoSuchPath(c.r)
	}
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	err := h.engine.CancelRun(c.r.Context(), c.row.ID, c.path[0], body.Message)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.name, "thread %q has no run %q", c.name, c.path[0])
	}
	if err != nil {
		return err
	}
	run, err := h.threads.Store().Run(c.r.Context(), c.row.ID, c.path[0])
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runOf(run))
}

// getExecution answers GET execution: the current run, or null when the thread rests (RUN-03).
func (h *runHandler) getExecution(c *call) error {
	run, err := h.threads.Store().Run(c.r.Context(), c.row.ID, "")
	if errors.Is(err, store.ErrNotFound) || err == nil && run.Status.Ended() {
		return c.writeJSON(http.StatusOK, nil)
	}
	if err != nil {
		return err
	}
	x := executionOf(run)
	x.Stopped = h.engine.Stopping(c.row.ID)
	return c.writeJSON(http.StatusOK, x)
}

func executionOf(r *store.Run) *runtimev1.ExecutionState {
	now := engine.Progress(r)
	return &runtimev1.ExecutionState{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindExecutionState),
		FlowID:   r.ID, Agent: r.Agent, CurrentSide: now.CurrentSide,
		StepCount: now.StepCount, SideAStepCount: now.SideAStepCount, SideBStepCount: now.SideBStepCount,
		Waiting: r.Status == store.RunWaiting, WaitingFor: r.Reason, StartedAt: r.StartedAt,
	}
}
