// Package state serves the state of threads, their key-value stores and those of namespaces.
package state

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// Handler serves the state of a thread.
type Handler struct{}

// List answers GET state: a page of the thread's state (STA-02).
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	page, err := c.Thread.StateEntries(c.Context(), store.StateQuery{Limit: limit, Offset: offset})
	if err != nil {
		return err
	}
	list := runtimev1.StateList{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindStateList), Entries: []runtimev1.StateEntry{}, Total: page.Total, Bytes: page.Bytes,
		HasMore: int64(offset+len(page.Entries)) < page.Total,
	}
	for _, e := range page.Entries {
		list.Entries = append(list.Entries, runtimev1.StateEntry(e))
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Get answers GET state/{key} with the value, or 404 when there is none, because null may be a value.
func (h *Handler) Get(c *call.Call) error {
	v, ok, err := c.Thread.StateValue(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	if !ok {
		return status.NotFound(c.Name, "the state of thread %q has no key %q: GET state lists the keys", c.Name, c.Rest())
	}
	return c.WriteJSON(http.StatusOK, v)
}

// Put answers PUT state/{key}: the body is the value, null included.
func (h *Handler) Put(c *call.Call) error {
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value")
	}
	return h.merge(c, store.StateChange{Verb: store.StateSet, Key: c.Rest(), Value: body})
}

// Delete answers DELETE state/{key}; a missing key is no error.
func (h *Handler) Delete(c *call.Call) error {
	return h.merge(c, store.StateChange{Verb: store.StateDelete, Key: c.Rest()})
}

// Change answers POST state: a batch of changes, all or nothing (STA-03).
func (h *Handler) Change(c *call.Call) error {
	var in runtimev1.StateChanges
	if err := c.Decode(&in, false); err != nil {
		return err
	}
	if len(in.Ops) == 0 {
		return apierrors.NewBadRequest(`the list of changes is empty: send {"ops": [{"op": "set", "key": "…", "value": …}]}`)
	}
	changes := make([]store.StateChange, len(in.Ops))
	for i, o := range in.Ops {
		changes[i] = store.StateChange{Verb: store.StateVerb(o.Op), Key: o.Key, Value: o.Value, Max: o.Max}
	}
	return h.merge(c, changes...)
}

func (h *Handler) merge(c *call.Call, changes ...store.StateChange) error {
	bytes, err := c.Thread.MergeState(c.Context(), changes)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.StateSize{Bytes: bytes})
}
