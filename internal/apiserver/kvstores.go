package apiserver

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/thread"
)

// kvStoreHandler serves the key-value stores of a namespace.
type kvStoreHandler struct {
	threads *thread.Service
}

// listKVKeys answers GET kvstores/{store}/values (STA-07).
func (h *kvStoreHandler) listKVKeys(c *call) error {
	q, err := keyQuery(c)
	if err != nil {
		return err
	}
	page, err := h.threads.KV(c.namespace).Keys(c.r.Context(), c.name, q)
	if err != nil {
		return err
	}
	return writeKeys(c, page)
}

// getKV answers GET kvstores/{store}/values/{key} with {exists, data}.
func (h *kvStoreHandler) getKV(c *call) error {
	v, err := h.threads.KV(c.namespace).Get(c.r.Context(), c.name, c.rest())
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.ValueRecord{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindValueRecord), Exists: v.Exists, Data: v.Data, ExpiresAt: v.ExpiresAt})
}

// maxTTL is a hundred years, in seconds.
const maxTTL = 100 * 365 * 24 * 3600

// putKV answers PUT kvstores/{store}/values/{key}: the body is the value. It is kept for ttl seconds, or forever
// without ttl.
func (h *kvStoreHandler) putKV(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	ttl := q.number("ttl", 0, 0, maxTTL)
	if err := q.check(); err != nil {
		return err
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value")
	}
	if err := h.threads.KV(c.namespace).Set(c.r.Context(), c.name, c.rest(), body, time.Duration(ttl)*time.Second); err != nil {
		return err
	}
	return c.writeSuccess()
}

// deleteKV answers DELETE kvstores/{store}/values/{key}, with 404 when there is no value.
func (h *kvStoreHandler) deleteKV(c *call) error {
	there, err := h.threads.KV(c.namespace).Delete(c.r.Context(), c.name, c.rest())
	if err != nil {
		return err
	}
	if !there {
		return status.NotFound(c.name, "the store %q has no value %q", c.name, c.rest())
	}
	return c.writeSuccess()
}
