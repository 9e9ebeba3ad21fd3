package apiserver

import (
	"errors"
	"math"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// getThread answers GET of the thread itself (THR-02).
func (s *Server) getThread(c *call) error { return s.writeThread(c) }

func (s *Server) writeThread(c *call) error {
	row, err := c.thread.Info(c.r.Context())
	if err != nil {
		return err
	}
	last, err := s.opts.Threads.Store().Run(c.r.Context(), row.ID, "")
	if errors.Is(err, store.ErrNotFound) {
		last = nil
	} else if err != nil {
		return err
	}
	record := threadRecord(row, last)
	if err := s.addRelated(c.r.Context(), c.thread, row, record); err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, record)
}

// listRuns answers GET runs, newest first.
func (s *Server) listRuns(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit := q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	offset := q.number("offset", 0, 0, math.MaxInt32)
	if err := q.check(); err != nil {
		return err
	}
	runs, err := s.opts.Threads.Store().Runs(c.r.Context(), c.row.ID, limit+1, offset)
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
func (s *Server) getRun(c *call) error {
	run, err := s.opts.Threads.Store().Run(c.r.Context(), c.row.ID, c.rest())
	if errors.Is(err, store.ErrNotFound) {
		return notFound(c.name, "thread %q has no run %q", c.name, c.rest())
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runOf(run))
}

// cancelRun answers POST runs/{id}/cancel: it ends this run and nothing else (RUN-10).
func (s *Server) cancelRun(c *call) error {
	if len(c.path) != 2 || c.path[1] != runtimev1.ActionCancel {
		return noSuchPath(c.r)
	}
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	err := s.opts.Engine.CancelRun(c.r.Context(), c.row.ID, c.path[0], body.Message)
	if errors.Is(err, store.ErrNotFound) {
		return notFound(c.name, "thread %q has no run %q", c.name, c.path[0])
	}
	if err != nil {
		return err
	}
	run, err := s.opts.Threads.Store().Run(c.r.Context(), c.row.ID, c.path[0])
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runOf(run))
}

// stopThread answers POST stop: it ends the current run, not the thread.
func (s *Server) stopThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if err := s.opts.Engine.Stop(c.r.Context(), c.row.ID, body.Message); err != nil {
		return err
	}
	return s.writeThread(c)
}

// terminateThread answers POST terminate (THR-05, SUB-08). Repeating it is no error.
func (s *Server) terminateThread(c *call) error {
	var body runtimev1.Stop
	if err := c.decode(&body, true); err != nil {
		return err
	}
	if err := s.opts.Engine.Terminate(c.r.Context(), c.row.ID, skeinv1.ReasonTerminatedByRequest); err != nil {
		return err
	}
	return s.writeThread(c)
}
