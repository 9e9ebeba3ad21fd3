package backups

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Orphans serves threads whose object is gone although their data was not retained, as after the cluster was made anew.
type Orphans struct {
	Threads *thread.Service
	// Live reads from the API server, because an object that a cache does not have yet is not gone.
	Live client.Reader
}

// exists reports whether a Thread object exists.
func (h *Orphans) exists(namespace string) func(ctx context.Context, name, uid string) (bool, error) {
	return func(ctx context.Context, name, uid string) (bool, error) {
		var o skeinv1.Thread
		err := h.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &o)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && string(o.UID) == uid, err
	}
}

// List answers GET orphans.
func (h *Orphans) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, after := q.PageOfThreads()
	if err := q.Check(); err != nil {
		return err
	}
	page, more, err := h.Threads.Orphans(c.Context(), c.Namespace, after, limit, h.exists(c.Namespace))
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, convert.RetainedList(page, more))
}

// Retain answers POST orphans/{id}: the thread is retained from now on, so that a new Thread can adopt it.
func (h *Orphans) Retain(c *call.Call) error {
	id, ok := thread.ParseID(c.Name)
	if !ok {
		return status.NotFound(c.Name, "%q is not the id of a thread: use its UUID, T-<uuid> or thrd_<32 hex digits>", c.Name)
	}
	err := h.Threads.RetainOrphan(c.Context(), c.Namespace, id, h.exists(c.Namespace))
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "the namespace has no thread %q without an object: GET orphans lists those that it has", c.Name)
	}
	if err != nil {
		return err
	}
	return c.WriteSuccess()
}
