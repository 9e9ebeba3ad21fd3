package state

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
)

// Values serves the key-value store of a thread.
type Values struct{}

// List answers GET kv: the keys of the thread's key-value store (KVS-01).
func (h *Values) List(c *call.Call) error {
	q, err := keyQuery(c)
	if err != nil {
		return err
	}
	page, err := c.Thread.ValueKeys(c.Context(), q)
	if err != nil {
		return err
	}
	return writeKeys(c, page)
}

// Get answers GET kv/{key} with the value itself, or null when there is none (KVS-01).
func (h *Values) Get(c *call.Call) error {
	v, err := c.Thread.Value(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	if v == nil {
		v = json.RawMessage("null")
	}
	return c.WriteJSON(http.StatusOK, v)
}

// Put answers PUT kv/{key}: the body is the value, and null removes the key.
func (h *Values) Put(c *call.Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value, null to remove the key")
	}
	if err := c.Thread.SetValue(c.Context(), c.Rest(), body); err != nil {
		return err
	}
	return c.WriteSuccess()
}

// Delete answers DELETE kv/{key}; a missing key is no error.
func (h *Values) Delete(c *call.Call) error {
	if err := c.Thread.SetValue(c.Context(), c.Rest(), nil); err != nil {
		return err
	}
	return c.WriteSuccess()
}

// keyQuery reads the parameters of a list of keys.
func keyQuery(c *call.Call) (store.KeyQuery, error) {
	q, err := c.Query()
	if err != nil {
		return store.KeyQuery{}, err
	}
	k := store.KeyQuery{Prefix: q.Text("prefix"), After: q.Text("after"), Limit: q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)}
	return k, q.Check()
}

func writeKeys(c *call.Call, page *store.KeyPage) error {
	return c.WriteJSON(http.StatusOK, runtimev1.KeyList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindKeyList), Keys: page.Keys, HasMore: page.HasMore})
}
