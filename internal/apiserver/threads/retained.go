package threads

import (
	"context"
	"errors"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
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
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := h.page(c.Context(), c.Namespace, after, limit)
	if err != nil {
		return err
	}
	adjust(bytesOf(page))
	return c.WriteJSON(http.StatusOK, convert.RetainedList(page, more))
}

// page returns the retained threads of a namespace behind an id, as many as a page may have, and whether more follow. It reads on past data of an earlier namespace
// of this name: a page that is empty because of such data would leave a client without the id that its next page begins behind.
func (h *Retained) page(ctx context.Context, namespace, after string, limit int) (page []store.Thread, more bool, err error) {
	within, err := h.Find.NamespaceUID(ctx, namespace)
	if err != nil {
		return nil, false, err
	}
	left := int64(maxPageBytes)
	for size := limit + 1; ; size = runtimev1.MaxPageSize {
		read, others, err := h.Threads.Store().Retained(ctx, namespace, after, size, max(left, 1))
		if err != nil {
			return nil, false, err
		}
		for i := range read {
			if !read[i].Within(within) {
				continue
			}
			if left -= read[i].Bytes(); len(page) == limit || left < 0 && len(page) > 0 {
				return page, true, nil
			}
			page = append(page, read[i])
		}
		if !others {
			return page, false, nil
		}
		after = read[len(read)-1].ID
	}
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
	err = h.Threads.PurgeRetained(c.Context(), c.Namespace, within, id)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "the namespace keeps no thread %q: GET retained lists those that it keeps", c.Name)
	}
	if err != nil {
		return err
	}
	return c.WriteSuccess()
}
