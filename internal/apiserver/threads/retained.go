package threads

import (
	"net/http"
	"slices"

	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Retained serves the threads that have no object.
type Retained struct {
	Threads *thread.Service
	Find    *lookup.Finder // knows whose data is
}

// List answers GET retained: the threads of a namespace that have no object (THR-09).
func (h *Retained) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, after := q.PageOfThreads()
	if err := q.Check(); err != nil {
		return err
	}
	threads, err := h.Threads.Store().Retained(c.Context(), c.Namespace, after, limit+1)
	if err != nil {
		return err
	}
	page, more := call.Cut(threads, limit, 0)
	within, err := h.Find.NamespaceUID(c.Context(), c.Namespace)
	if err != nil {
		return err
	}
	// Data of an earlier namespace of this name leaves the page shorter.
	page = slices.DeleteFunc(page, func(t store.Thread) bool { return !t.Within(within) })
	return c.WriteJSON(http.StatusOK, convert.RetainedList(page, more))
}

// Purge answers DELETE retained/{id}: it removes the retained data for good.
func (h *Retained) Purge(c *call.Call) error {
	id, ok := thread.ParseID(c.Name)
	if !ok {
		return status.NotFound(c.Name, "%q is not the id of a thread: use its UUID, T-<uuid> or thrd_<32 hex digits>", c.Name)
	}
	within, err := h.Find.NamespaceUID(c.Context(), c.Namespace)
	if err != nil {
		return err
	}
	if err := h.Threads.PurgeRetained(c.Context(), c.Namespace, within, id); err != nil {
		return err
	}
	return c.WriteSuccess()
}
