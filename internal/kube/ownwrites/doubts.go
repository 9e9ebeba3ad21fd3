package ownwrites

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// doubting is how long an object stays doubtful at least. It is longer than a broken watch takes to be mended.
const doubting = 10 * time.Minute

// doubts are the objects of which the client may have read a state that its own writes had changed already, by type and key. They are
// forgotten after one to two periods in which doubts are added or asked for, and later when there are none.
type doubts struct {
	period time.Duration

	mu              sync.Mutex
	turned          time.Time
	recent, earlier map[string]struct{}
}

func newDoubts(period time.Duration) *doubts {
	return &doubts{period: period, turned: time.Now(), recent: map[string]struct{}{}}
}

func doubtKey(o client.Object, key client.ObjectKey) string { return fmt.Sprintf("%T %s", o, key) }

// turn forgets what is older than two periods. The caller holds mu.
func (d *doubts) turn() {
	now := time.Now()
	switch since := now.Sub(d.turned); {
	case since < d.period:
		return
	case since < 2*d.period:
		d.earlier = d.recent
	default:
		d.earlier = nil
	}
	d.recent, d.turned = map[string]struct{}{}, now
}

func (d *doubts) add(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn()
	d.recent[key] = struct{}{}
}

func (d *doubts) has(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn()
	_, recent := d.recent[key]
	_, earlier := d.earlier[key]
	return recent || earlier
}

// Doubtful reports whether this client may have read a state of an object that one of its own writes had changed already. That is so if it
// lately read the object without waiting for its writes, or if it does not know whether a write was stored. A controller that ignores
// changes of the status, because it makes them, must not ignore those of a doubtful object: it may have decided by the earlier state.
func (c *Client) Doubtful(o client.Object) bool {
	return c.doubts.has(doubtKey(o, client.ObjectKeyFromObject(o)))
}

// note makes an object doubtful when the API server may have stored a write that failed here.
func (c *Client) note(o client.Object, err error) error {
	if err != nil && mayBeStored(err) {
		c.doubts.add(doubtKey(o, client.ObjectKeyFromObject(o)))
	}
	return err
}

// Writes of other kinds, by Apply and to other subresources, are not noted. Controllers make none of objects that they reconcile.

// mayBeStored reports whether a write may have been stored although it ended with an error: no answer came, or one of a server that could not
// finish.
func mayBeStored(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.note(o, c.Client.Create(ctx, o, opts...))
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.note(o, c.Client.Update(ctx, o, opts...))
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.note(o, c.Client.Patch(ctx, o, patch, opts...))
}

// Status implements client.StatusClient.
func (c *Client) Status() client.SubResourceWriter {
	return &statusWriter{SubResourceWriter: c.Client.Status(), client: c}
}

// statusWriter writes the status of objects.
type statusWriter struct {
	client.SubResourceWriter
	client *Client
}

// Update implements client.SubResourceWriter.
func (w *statusWriter) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return w.client.note(o, w.SubResourceWriter.Update(ctx, o, opts...))
}

// Patch implements client.SubResourceWriter.
func (w *statusWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.client.note(o, w.SubResourceWriter.Patch(ctx, o, patch, opts...))
}
