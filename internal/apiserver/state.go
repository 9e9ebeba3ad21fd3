package apiserver

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// listState answers GET state: a page of the thread's state (STA-02).
func (s *Server) listState(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	if err := q.check(); err != nil {
		return err
	}
	page, err := c.thread.StateEntries(c.r.Context(), store.StateQuery{Limit: limit, Offset: offset})
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
	return c.writeJSON(http.StatusOK, list)
}

// getState answers GET state/{key} with the value, or 404 when there is none, because null may be a value.
func (s *Server) getState(c *call) error {
	v, ok, err := c.thread.StateValue(c.r.Context(), c.rest())
	if err != nil {
		return err
	}
	if !ok {
		return notFound(c.name, "the state of thread %q has no key %q", c.name, c.rest())
	}
	return c.writeJSON(http.StatusOK, v)
}

// putState answers PUT state/{key}: the body is the value, null included.
func (s *Server) putState(c *call) error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value")
	}
	return s.mergeState(c, store.StateChange{Verb: store.StateSet, Key: c.rest(), Value: body})
}

// deleteState answers DELETE state/{key}; a missing key is no error.
func (s *Server) deleteState(c *call) error {
	return s.mergeState(c, store.StateChange{Verb: store.StateDelete, Key: c.rest()})
}

// changeState answers POST state: a batch of changes, all or nothing (STA-03).
func (s *Server) changeState(c *call) error {
	var in runtimev1.StateChanges
	if err := c.decode(&in, false); err != nil {
		return err
	}
	if len(in.Ops) == 0 {
		return apierrors.NewBadRequest(`the list of changes is empty: send {"ops": [{"op": "set", "key": "…", "value": …}]}`)
	}
	changes := make([]store.StateChange, len(in.Ops))
	for i, o := range in.Ops {
		changes[i] = store.StateChange{Verb: store.StateVerb(o.Op), Key: o.Key, Value: o.Value, Max: o.Max}
	}
	return s.mergeState(c, changes...)
}

func (s *Server) mergeState(c *call, changes ...store.StateChange) error {
	bytes, err := c.thread.MergeState(c.r.Context(), changes)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.StateSize{Bytes: bytes})
}

// keyQuery reads the parameters of a list of keys.
func (c *call) keyQuery() (store.KeyQuery, error) {
	q, err := c.query()
	if err != nil {
		return store.KeyQuery{}, err
	}
	k := store.KeyQuery{Prefix: q.text("prefix"), After: q.text("after"), Limit: q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)}
	return k, q.check()
}

func (c *call) writeKeys(page *store.KeyPage) error {
	return c.writeJSON(http.StatusOK, runtimev1.KeyList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindKeyList), Keys: page.Keys, HasMore: page.HasMore})
}

// listKeys answers GET kv: the keys of the thread's key-value store (KVS-01).
func (s *Server) listKeys(c *call) error {
	q, err := c.keyQuery()
	if err != nil {
		return err
	}
	page, err := c.thread.ValueKeys(c.r.Context(), q)
	if err != nil {
		return err
	}
	return c.writeKeys(page)
}

// listKVKeys answers GET kvstores/{store}/values (STA-07).
func (s *Server) listKVKeys(c *call) error {
	q, err := c.keyQuery()
	if err != nil {
		return err
	}
	page, err := s.opts.Threads.KV(c.namespace).Keys(c.r.Context(), c.name, q)
	if err != nil {
		return err
	}
	return c.writeKeys(page)
}

// getKV answers GET kvstores/{store}/values/{key} with {exists, data}.
func (s *Server) getKV(c *call) error {
	v, err := s.opts.Threads.KV(c.namespace).Get(c.r.Context(), c.name, c.rest())
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.ValueRecord{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindValueRecord), Exists: v.Exists, Data: v.Data, ExpiresAt: v.ExpiresAt})
}

// maxTTL is a hundred years, in seconds.
const maxTTL = 100 * 365 * 24 * 3600

// putKV answers PUT kvstores/{store}/values/{key}: the body is the value. It is kept for ttl seconds, or forever
// without ttl.
func (s *Server) putKV(c *call) error {
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
	if err := s.opts.Threads.KV(c.namespace).Set(c.r.Context(), c.name, c.rest(), body, time.Duration(ttl)*time.Second); err != nil {
		return err
	}
	return c.writeSuccess()
}

// deleteKV answers DELETE kvstores/{store}/values/{key}, with 404 when there is no value.
func (s *Server) deleteKV(c *call) error {
	there, err := s.opts.Threads.KV(c.namespace).Delete(c.r.Context(), c.name, c.rest())
	if err != nil {
		return err
	}
	if !there {
		return notFound(c.name, "the store %q has no value %q", c.name, c.rest())
	}
	return c.writeSuccess()
}
