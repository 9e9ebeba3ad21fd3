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

// State returns a page of the thread's state (STA-02), keys in the order in which they were first set.
func (t *Thread) State(ctx context.Context, p Page) (*runtimev1.StateList, error) {
	return readAs[runtimev1.StateList](ctx, t, p.params(), runtimev1.SubresourceState)
}

// StateValue returns one value of the thread's state. ok is false when there is none.
func (t *Thread) StateValue(ctx context.Context, key string) (value json.RawMessage, ok bool, err error) {
	err = t.getAt(ctx, &value, nil, runtimev1.SubresourceState, key)
	if apierrors.IsNotFound(err) {
		return nil, false, t.absentBelow(ctx, err)
	}
	return value, err == nil, err
}

// SetState stores any JSON value in the thread's state, including null. The error is one that IsInvalid when the
// state would be larger than 1,048,576 bytes (STA-05).
func (t *Thread) SetState(ctx context.Context, key string, value any) error {
	data, err := jsonFor(key, value)
	if err != nil {
		return err
	}
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "set", Key: key, Value: data})
}

// DeleteState removes a key of the thread's state. A missing key is no error.
func (t *Thread) DeleteState(ctx context.Context, key string) error {
	return t.ChangeState(ctx, runtimev1.StateOperation{Op: "delete", Key: key})
}

// PushState appends to the array under a key of the thread's state, creates it when missing, and keeps the last max
// elements, or all when max is 0. The error is one that IsInvalid when the key has a value that is not an array
// (STA-04).
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

// ChangeState applies changes in order, all or nothing. The store applies them without sending the state to the
// client (STA-03).
func (t *Thread) ChangeState(ctx context.Context, ops ...runtimev1.StateOperation) error {
	for _, o := range ops {
		if (o.Op == "set" || o.Op == "push") && o.Value == nil {
			return fmt.Errorf("%q has no value: set one as JSON, such as null", o.Key)
		}
	}
	return t.send(ctx, http.MethodPost, runtimev1.StateChanges{Ops: ops}, nil, runtimev1.SubresourceState)
}

// jsonFor encodes the value for a key as JSON.
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
	After  string // only keys after this one, the last of the previous page
	Limit  int    // 0 means 100; the maximum is 1000
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

// Keys returns a page of the keys of the thread's key-value store, in order (KVS-01).
func (t *Thread) Keys(ctx context.Context, o KeyOptions) (*runtimev1.KeyList, error) {
	return readAs[runtimev1.KeyList](ctx, t, o.params(), runtimev1.SubresourceKV)
}

// Usage returns the total usage of the thread's ended runs, and with subtree also of its descendants' (LOG-03).
func (t *Thread) Usage(ctx context.Context, subtree bool) (*runtimev1.Usage, error) {
	var p map[string]string
	if subtree {
		p = map[string]string{"subtree": "true"}
	}
	return readAs[runtimev1.Usage](ctx, t, p, runtimev1.SubresourceUsage)
}

// UsageRecords returns a page with the usage of each of the thread's ended runs and of each task that followed one,
// newest first (RUN-07).
func (t *Thread) UsageRecords(ctx context.Context, p Page) (*runtimev1.UsageRecordList, error) {
	return readAs[runtimev1.UsageRecordList](ctx, t, p.params(), runtimev1.SubresourceUsage, runtimev1.UsageRecords)
}

// Export streams the conversation as lines of JSON (LOG-01, docs/export.md). The caller must close the stream. A
// stream that was cut off ends with an error.
func (t *Thread) Export(ctx context.Context) (io.ReadCloser, error) {
	r, err := t.request(http.MethodGet, runtimev1.SubresourceExport)
	if err != nil {
		return nil, err
	}
	return open(ctx, r.SetHeader("Accept", "*/*"))
}

// Import fills an empty thread with a conversation in the form of Export (LOG-02), all or nothing. An error that
// IsInvalid names the wrong line; one that IsConflict means that the thread is not empty.
func (t *Thread) Import(ctx context.Context, lines io.Reader) (*runtimev1.ImportResult, error) {
	r, err := t.request(http.MethodPost, runtimev1.SubresourceImport)
	if err != nil {
		return nil, err
	}
	r.Body(struct{ io.Reader }{lines}).MaxRetries(0).SetHeader("Content-Type", runtimev1.MediaTypeJSONL) // a stream cannot be sent twice
	return getAs[runtimev1.ImportResult](ctx, r)
}

// Usage returns the total usage of the ended runs of a namespace, or of one agent when agent is not empty (LOG-03).
// It includes threads that have been deleted since.
func (c *Client) Usage(ctx context.Context, namespace, agent string) (*runtimev1.Usage, error) {
	var p map[string]string
	if agent != "" {
		p = map[string]string{"agent": agent}
	}
	return viewAs[runtimev1.Usage](ctx, c, p, namespace, runtimev1.ViewUsage)
}

// KV returns a store of the key-value service of a namespace (STA-07). A store need not be created.
func (c *Client) KV(namespace, store string) *KV { return &KV{c, namespace, store} }

// KV is one store of the key-value service. Making one sends no request.
type KV struct {
	client           *Client
	namespace, store string
}

func (k *KV) request(verb, key string) (*rest.Request, error) {
	parts, odd := []string{k.store, "values"}, key != "" && checkSegment(key) != nil
	if key != "" && !odd {
		parts = append(parts, strings.Split(key, "/")...)
	}
	r, err := k.client.viewRequest(verb, k.namespace, runtimev1.ViewKVStores, parts...)
	if err == nil && odd {
		r.Param(runtimev1.KeyParameter, key)
	}
	return r, err
}

// Get returns a value. Exists is false when there is none or it has expired.
func (k *KV) Get(ctx context.Context, key string) (*runtimev1.ValueRecord, error) {
	if key == "" {
		return nil, errNoKey
	}
	r, err := k.request(http.MethodGet, key)
	if err != nil {
		return nil, err
	}
	return getAs[runtimev1.ValueRecord](ctx, r)
}

const errNoKey = invalidError("the key is empty: set one")

// Set stores any JSON value for ttl, in whole seconds, or forever when ttl is 0.
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

// Delete removes a value. It returns false when there is none.
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

// Keys returns a page of the store's keys, in order.
func (k *KV) Keys(ctx context.Context, o KeyOptions) (*runtimev1.KeyList, error) {
	r, err := k.request(http.MethodGet, "")
	if err != nil {
		return nil, err
	}
	for name, v := range o.params() {
		r.Param(name, v)
	}
	return getAs[runtimev1.KeyList](ctx, r)
}

// LifecycleOptions say where a stream of lifecycle events begins and when it ends.
type LifecycleOptions struct {
	// After is the cursor of the last event that was seen. Empty means all stored events; they are kept for a week.
	After string
	// Latest skips existing events.
	Latest bool
	// NoFollow ends the stream at the present end of the feed instead of waiting for more.
	NoFollow bool
}

// Lifecycle streams the lifecycle events of threads and sessions of a namespace, or of all namespaces when namespace
// is empty (STA-06). It reconnects by itself when the connection ends, and continues after the last event, so that no
// event is lost or repeated. It ends with ctx (no error), at the end of the feed with NoFollow, or with the error of
// a server that refuses.
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
	return viewAs[runtimev1.LifecycleList](ctx, f.client, p, f.namespace, runtimev1.ViewLifecycle)
}

// read yields the existing events, page by page.
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

// watch reads one connection until it ends.
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
