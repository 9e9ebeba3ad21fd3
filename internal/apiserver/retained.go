package apiserver

import (
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/thread"
)

// retainedHandler serves the threads that have no object.
type retainedHandler struct {
	threads *thread.Service
}

// listRetained answers GET retained: the threads of a namespace that have no object (THR-09).
func (h *retainedHandler) listRetained(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit := q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	after := q.text("after")
	if id, ok := parseThreadID(after); ok {
		after = id
	} else if after != "" {
		q.bad("after", "%q is not the id of a thread: set it to the id of the last thread of the previous page", after)
	}
	if err := q.check(); err != nil {
		return err
	}
	threads, err := h.threads.Store().Retained(c.r.Context(), c.namespace, after, limit+1)
	if err != nil {
		return err
	}
	page, more := cut(threads, limit, 0)
	list := runtimev1.RetainedList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRetainedList), Threads: make([]runtimev1.ThreadRecord, len(page)), HasMore: more}
	for i := range page {
		list.Threads[i] = *threadRecord(&page[i], nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

// purgeRetained answers DELETE retained/{id}: it removes the retained data for good.
func (h *retainedHandler) purgeRetained(c *call) error {
	id, ok := parseThreadID(c.name)
	if !ok {
		return status.NotFound(c.name, "%q is not the id of a thread: use its UUID, T-<uuid> or thrd_<32 hex digits>", c.name)
	}
	if err := h.threads.PurgeRetained(c.r.Context(), c.namespace, id); err != nil {
		return err
	}
	return c.writeSuccess()
}
