// Package runs serves the runs of a thread and what they used.
package runs

import (
	"context"
	"errors"
	"math"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Engine is the part of the engine that knows of runs under way.
type Engine interface {
	// CancelRun ends one run of a thread (RUN-10).
	CancelRun(ctx context.Context, threadID, runID, reason string) error
	Stopping(threadID string) bool
}

// Handler serves the runs of a thread and what they used.
type Handler struct {
	Threads *thread.Service
	Engine  Engine
}

// maxPageBytes bounds a page: a run may have kept a session state of a mebibyte, and a page a thousand runs.
const maxPageBytes = 8 << 20

// List answers GET runs, newest first.
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit := q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	offset := q.Number("offset", 0, 0, math.MaxInt32)
	if err := q.Check(); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := h.Threads.Store().RunsWithin(c.Context(), c.Row.ID, limit, offset, maxPageBytes)
	if err != nil {
		return err
	}
	var size int64
	for i := range page {
		size += page[i].Bytes()
	}
	adjust(size)
	list := runtimev1.RunList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRunList), Runs: make([]runtimev1.Run, len(page)), HasMore: more}
	for i := range page {
		list.Runs[i] = convert.Run(&page[i])
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Get answers GET runs/{id}.
func (h *Handler) Get(c *call.Call) error {
	run, err := h.Threads.Store().Run(c.Context(), c.Row.ID, c.Rest())
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no run %q: GET runs lists them", c.Name, c.Rest())
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, convert.Run(run))
}

// Cancel answers POST runs/{id}/cancel: it ends this run and nothing else (RUN-10).
func (h *Handler) Cancel(c *call.Call) error {
	if len(c.Path) != 2 || c.Path[1] != runtimev1.ActionCancel {
		return status.NoSuchPath(c.Request)
	}
	var body runtimev1.Stop
	if err := c.Decode(&body, true); err != nil {
		return err
	}
	err := h.Engine.CancelRun(c.Context(), c.Row.ID, c.Path[0], body.Message)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no run %q: GET runs lists them", c.Name, c.Path[0])
	}
	if err != nil {
		return err
	}
	run, err := h.Threads.Store().Run(c.Context(), c.Row.ID, c.Path[0])
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, convert.Run(run))
}

// GetExecution answers GET execution: the current run, or null when the thread rests (RUN-03).
func (h *Handler) GetExecution(c *call.Call) error {
	run, err := h.Threads.Store().Run(c.Context(), c.Row.ID, "")
	if errors.Is(err, store.ErrNotFound) || err == nil && run.Status.Ended() {
		return c.WriteJSON(http.StatusOK, nil)
	}
	if err != nil {
		return err
	}
	x := executionOf(run)
	x.Stopped = h.Engine.Stopping(c.Row.ID)
	return c.WriteJSON(http.StatusOK, x)
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
