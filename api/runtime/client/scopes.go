package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// State gives a page of the thread's state (STA-02), keys in the order in which they were first set.
func (t *Thread) State(ctx context.Context, p Page) (*runtimev1.StateList, error) {
	return one[runtimev1.StateList](func(out any) error { return t.getAt(ctx, out, p.params(), runtimev1.SubresourceState) })
}

// StateValue gives one value of the thread's state; ok is false when there is none. A key is part of the URL: it
// cannot have empty parts, "." or ".." between slashes.
func (t *Thread) StateValue(ctx context.Context, key string) (value json.RawMessage, ok bool, err error) {
	err = t.getAt(ctx, &value, nil, runtimev1.SubresourceState, key)
	if apierrors.IsNotFound(err) {
		return nil, false, t.absentBelow(ctx, err)
	}
	return value, err == nil, err
}

// SetState keeps any JSON value in the thread's state, null included. An error that IsInvalid when the state would
// be larger than 1,048,576 bytes (STA-05).
func (t *Thread) SetState(ctx context.Context, key string, value any) error {
	data, err := jsonFor(key, value)
	if err != nil {
		return err
	}
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "set", Key: key, Value: data})
}

// DeleteState removes a key of the thread's state; a missing one is no error.
func (t *Thread) DeleteState(ctx context.Context, key string) error {
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "delete", Key: key})
}

// PushState appends to the array under a key of the thread's state, made when missing, and keeps the last max
// elements, all when max is 0. An error that IsInvalid when something else is there (STA-04).
func (t *Thread) PushState(ctx context.Context, key string, value any, max int) error {
	data, err := jsonFor(key, value)
	if err != nil {
		return err
	}
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "push", Key: key, Value: data, Max: max})
}

// ClearState removes all of the thread's state.
func (t *Thread) ClearState(ctx context.Context) error {
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "clear"})
}

// ChangeState applies changes in order, all or nothing, where the state is stored (STA-03).
func (t *Thread) ChangeState(ctx context.Context, ops ...runtimev1.StateOperation) error {
	for _, o := range ops {
		if (o.Op == "set" || o.Op == "push") && o.Value == nil {
			return fmt.Errorf("there is no value for %q: give one as JSON, null included", o.Key)
		}
	}
	return t.send(ctx, http.MethodPost, runtimev1.StateChanges{Ops: ops}, nil, runtimev1.SubresourceState)
}

// jsonFor writes the value for a key as JSON.
func jsonFor(key string, v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the value for %q is not JSON: %w", key, err)
	}
	return data, nil
}

// KeyOptions select a page of keys.
type KeyOptions struct {
	Prefix string
	After  string // only keys after this one, the last of the page before
	Limit  int    // 100 when 0, 1000 at most
}

func (o KeyOptions) params() map[string]string {
	p := Page{Limit: o.Limit}.params()
	if o.Prefix != "" {
		p["prefix"] = o.Prefix
	}
	if o.After != "" {
		p["after"] = o.After
	}
	return p
}

// Keys gives a page of the keys of the thread's key-value store, in order (KVS-01).
func (t *Thread) Keys(ctx context.Context, o KeyOptions) (*runtimev1.KeyList, error) {
	return one[runtimev1.KeyList](func(out any) error { return t.getAt(ctx, out, o.params(), runtimev1.SubresourceKV) })
}

// Usage sums what the thread's ended runs used, with subtree its descendants' too (LOG-03).
func (t *Thread) Usage(ctx context.Context, subtree bool) (*runtimev1.Usage, error) {
	var p map[string]string
	if subtree {
		p = map[string]string{"subtree": "true"}
	}
	return one[runtimev1.Usage](func(out any) error { return t.getAt(ctx, out, p, runtimev1.SubresourceUsage) })
}

// UsageRecords gives a page of what the thread's ended runs used, and the tasks that followed them, newest first
// (RUN-07).
func (t *Thread) UsageRecords(ctx context.Context, p Page) (*runtimev1.UsageRecordList, error) {
	return one[runtimev1.UsageRecordList](func(out any) error {
		return t.getAt(ctx, out, p.params(), runtimev1.SubresourceUsage, runtimev1.UsageRecords)
	})
}

// Export streams the conversation as lines of JSON (LOG-01, docs/export.md). Close the stream; one that was
// cut off ends with an error.
func (t *Thread) Export(ctx context.Context) (io.ReadCloser, error) {
	r, err := t.request(http.MethodGet, runtimev1.SubresourceExport)
	if err != nil {
		return nil, err
	}
	return open(ctx, r.SetHeader("Accept", "*/*"))
}

// Import fills an empty thread with a conversation in the form of Export (LOG-02), all or nothing. An error
// that IsInvalid names the line that is wrong, one that IsConflict says that the thread is not empty.
func (t *Thread) Import(ctx context.Context, lines io.Reader) (*runtimev1.ImportResult, error) {
	r, err := t.request(http.MethodPost, runtimev1.SubresourceImport)
	if err != nil {
		return nil, err
	}
	r.Body(struct{ io.Reader }{lines}).MaxRetries(0).SetHeader("Content-Type", runtimev1.MediaTypeJSONL) // a stream cannot be sent twice
	return one[runtimev1.ImportResult](func(out any) error { return get(ctx, r, out) })
}

// Usage sums what ended runs of a namespace used, of one agent of it when agent is not empty (LOG-03). What
// threads used that are deleted by now is part of it.
func (c *Client) Usage(ctx context.Context, namespace, agent string) (*runtimev1.Usage, error) {
	var p map[string]string
	if agent != "" {
		p = map[string]string{"agent": agent}
	}
	return one[runtimev1.Usage](func(out any) error { return c.viewAt(ctx, out, p, namespace, runtimev1.ViewUsage) })
}

// KV gives a store of the key-value service of a namespace (STA-07). A store need not be made.
func (c *Client) KV(namespace, store string) *KV { return &KV{c, namespace, store} }

// KV is one store of the key-value service. Making one asks nothing of the server.
type KV struct {
	client           *Client
	namespace, store string
}

func (k *KV) request(verb, key string) (*rest.Request, error) {
	parts := []string{k.store, "values"}
	if key != "" {
		parts = append(parts, strings.Split(key, "/")...)
	}
	return k.client.viewRequest(verb, k.namespace, runtimev1.ViewKVStores, parts...)
}

// Get gives a value: Exists is false when there is none, or it has expired. A key is part of the URL: it cannot
// have empty parts, "." or ".." between slashes.
func (k *KV) Get(ctx context.Context, key string) (*runtimev1.ValueRecord, error) {
	if key == "" {
		return nil, errNoKey
	}
	r, err := k.request(http.MethodGet, key)
	if err != nil {
		return nil, err
	}
	return one[runtimev1.ValueRecord](func(out any) error { return get(ctx, r, out) })
}

var errNoKey = errors.New("the key is empty: give one")

// Set keeps any JSON value for ttl, in whole seconds, for ever when it is 0.
func (k *KV) Set(ctx context.Context, key string, value any, ttl time.Duration) error {
	if key == "" {
		return errNoKey
	}
	data, err := jsonFor(key, value)
	if err != nil {
		return err
	}
	r, err := k.request(http.MethodPut, key)
	if err != nil {
		return err
	}
	if ttl != 0 {
		r.Param("ttl", strconv.FormatInt(int64((ttl+time.Second-1)/time.Second), 10))
	}
	return get(ctx, r.Body([]byte(data)).SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0), nil)
}

// Delete removes a value; false when there is none.
func (k *KV) Delete(ctx context.Context, key string) (bool, error) {
	if key == "" {
		return false, errNoKey
	}
	r, err := k.request(http.MethodDelete, key)
	if err != nil {
		return false, err
	}
	err = get(ctx, r, nil)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Keys gives a page of the store's keys, in order.
func (k *KV) Keys(ctx context.Context, o KeyOptions) (*runtimev1.KeyList, error) {
	r, err := k.request(http.MethodGet, "")
	if err != nil {
		return nil, err
	}
	for name, v := range o.params() {
		r.Param(name, v)
	}
	return one[runtimev1.KeyList](func(out any) error { return get(ctx, r, out) })
}

// LifecycleOptions say where to begin and when to end.
type LifecycleOptions struct {
	// After is the cursor of the last event that was seen; empty for all that is kept, which is a week's.
	After string
	// Latest begins with what happens from now on.
	Latest bool
	// NoFollow ends at the present end of the feed instead of waiting for more.
	NoFollow bool
}

// Lifecycle streams what happens to threads and sessions of a namespace, of all when it is empty (STA-06). It
// connects again by itself when the connection ends, going on after the last event, so that nothing is lost or
// doubled; it ends with ctx (no error), at the end of the feed with NoFollow, or with the error of a server that
// refuses.
func (c *Client) Lifecycle(ctx context.Context, namespace string, o LifecycleOptions) iter.Seq2[runtimev1.LifecycleEvent, error] {
	return func(yield func(runtimev1.LifecycleEvent, error) bool) {
		f := &feed{client: c, namespace: namespace, after: o.After}
		if o.Latest {
			end, err := f.page(ctx, runtimev1.AfterLatest)
			if err != nil {
				yield(runtimev1.LifecycleEvent{}, err)
				return
			}
			f.after = end.Next
		}
		if o.NoFollow {
			f.read(ctx, yield)
			return
		}
		pause := initialPause()
		for {
			progress, err := f.watch(ctx, yield)
			switch {
			case errors.Is(err, errDone), ctx.Err() != nil:
				return
			case err != nil && (final(err) || !f.connected):
				yield(runtimev1.LifecycleEvent{}, err)
				return
			}
			if progress {
				pause = initialPause()
			}
			if !sleep(ctx, &pause) {
				return
			}
		}
	}
}

func sleep(ctx context.Context, pause *wait.Backoff) bool {
	timer := time.NewTimer(pause.Step())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// feed reads the lifecycle feed.
type feed struct {
	client    *Client
	namespace string
	after     string
	connected bool
}

func (f *feed) page(ctx context.Context, after string) (*runtimev1.LifecycleList, error) {
	p := map[string]string{"limit": strconv.Itoa(runtimev1.MaxPageSize)}
	if after != "" {
		p["after"] = after
	}
	return one[runtimev1.LifecycleList](func(out any) error { return f.client.viewAt(ctx, out, p, f.namespace, runtimev1.ViewLifecycle) })
}

// read gives what there is, page by page.
func (f *feed) read(ctx context.Context, yield func(runtimev1.LifecycleEvent, error) bool) {
	for {
		page, err := f.page(ctx, f.after)
		if err != nil {
			yield(runtimev1.LifecycleEvent{}, err)
			return
		}
		for _, e := range page.Events {
			if !yield(e, nil) {
				return
			}
		}
		if f.after = page.Next; !page.HasMore {
			return
		}
	}
}

// watch reads one connection to its end.
func (f *feed) watch(ctx context.Context, yield func(runtimev1.LifecycleEvent, error) bool) (progress bool, err error) {
	r, err := f.client.viewRequest(http.MethodGet, f.namespace, runtimev1.ViewLifecycle)
	if err != nil {
		yield(runtimev1.LifecycleEvent{}, err)
		return false, errDone
	}
	r.Param("watch", "true").SetHeader("Accept", "text/event-stream")
	if f.after != "" {
		r.Param("after", f.after)
	}
	body, err := open(ctx, r)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	f.connected = true
	err = readEvents(body, func(e runtimev1.LifecycleEvent) error {
		progress, f.after = true, e.Cursor
		if !yield(e, nil) {
			return errDone
		}
		return nil
	})
	return progress, err
}
