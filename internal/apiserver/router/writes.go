package router

import (
	"context"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// Any write to a thread may carry the version that it expects (?v=), the lease that it is made under (Skein-Lease)
// and the key that makes it happen once (Idempotency-Key). The router applies them to the thread that the handler
// gets, so handlers do not handle them.

// serveThread answers a call on a thread.
func (rt *Router) serveThread(c *call.Call, r Route, h call.Handler) error {
	if !c.Writes() {
		if err := rt.admit(c); err != nil {
			return err
		}
		return h(c)
	}
	key := c.Request.Header.Get(runtimev1.HeaderIdempotencyKey)
	if key == "" {
		return rt.serveWrite(c, r, h)
	}
	return rt.repeats.serve(c, r, key, func(c *call.Call) error { return rt.serveWrite(c, r, h) })
}

// serveWrite binds the call's thread to its lease and its expected version. It checks both here for writes that do
// not go through the store. Writes that do are checked again in their transaction.
func (rt *Router) serveWrite(c *call.Call, r Route, h call.Handler) error {
	ctx := c.Context()
	if err := rt.admit(c); err != nil { // after the check for a repeat under an idempotency key, which must get its stored answer
		return err
	}
	if token := c.Request.Header.Get(runtimev1.HeaderLease); token != "" && c.Subresource != runtimev1.SubresourceLease { // the calls of lease manage the lease in the header
		w, err := rt.Find.Threads.WriterOf(c.Row.ID, token)
		if err != nil {
			return err
		}
		c.Thread = c.Thread.WithFence(w.Fence())
		if err := rt.Find.Threads.Store().Apply(ctx, c.Row.ID, w.Fence()); err != nil {
			return err
		}
	}
	if r.Foreign {
		return h(c)
	}
	expected, err := expectedVersion(c)
	if err != nil || expected == nil {
		if err != nil {
			return err
		}
		return h(c)
	}
	row, err := c.Thread.Info(ctx)
	if err != nil {
		return err
	}
	if row.Version != *expected {
		return &store.VersionError{ThreadID: row.ID, Expected: *expected, Current: row.Version}
	}
	c.Thread = c.Thread.ExpectVersion(*expected)
	return h(c)
}

// expectedVersion returns the version that the caller expects, or nil when the request names none.
func expectedVersion(c *call.Call) (*int64, error) {
	values, ok := c.Request.URL.Query()[status.VersionParameter]
	if !ok {
		return nil, nil
	}
	v, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || v < 0 || len(values) > 1 {
		return nil, status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, status.VersionParameter, "set it once, to the version that you have read: a whole number of 0 or more")
	}
	return &v, nil
}

// keepTimeout bounds storing an answer, which continues when the client has gone.
const keepTimeout = 10 * time.Second

func keepContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), keepTimeout)
}
