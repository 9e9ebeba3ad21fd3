package state

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Stores serves the key-value stores of a namespace.
type Stores struct {
	Threads *thread.Service
}

// List answers GET kvstores/{store}/values (STA-07).
func (h *Stores) List(c *call.Call) error {
	q, err := keyQuery(c)
	if err != nil {
		return err
	}
	page, err := h.Threads.KV(store.Namespace{Name: c.Namespace}).Keys(c.Context(), c.Name, q)
	if err != nil {
		return err
	}
	return writeKeys(c, page)
}

// Get answers GET kvstores/{store}/values/{key} with {exists, data}.
func (h *Stores) Get(c *call.Call) error {
	v, err := h.Threads.KV(store.Namespace{Name: c.Namespace}).Get(c.Context(), c.Name, c.Rest())
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.ValueRecord{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindValueRecord), Exists: v.Exists, Data: v.Data, ExpiresAt: v.ExpiresAt})
}

// maxTTL is a hundred years, in seconds.
const maxTTL = 100 * 365 * 24 * 3600

// Put answers PUT kvstores/{store}/values/{key}: the body is the value. It is kept for ttl seconds, or forever
// without ttl.
func (h *Stores) Put(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	ttl := q.Number("ttl", 0, 0, maxTTL)
	if err := q.Check(); err != nil {
		return err
	}
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value")
	}
	if err := h.Threads.KV(store.Namespace{Name: c.Namespace}).Set(c.Context(), c.Name, c.Rest(), body, time.Duration(ttl)*time.Second); err != nil {
		return err
	}
	return c.WriteSuccess()
}

// Delete answers DELETE kvstores/{store}/values/{key}, with 404 when there is no value.
func (h *Stores) Delete(c *call.Call) error {
	there, err := h.Threads.KV(store.Namespace{Name: c.Namespace}).Delete(c.Context(), c.Name, c.Rest())
	if err != nil {
		return err
	}
	if !there {
		return status.NotFound(c.Name, "the store %q has no value %q: GET values lists its keys", c.Name, c.Rest())
	}
	return c.WriteSuccess()
}
