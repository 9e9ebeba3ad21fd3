package threads

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Flush waits for versions of threads. Wait bounds how long.
type Flush struct {
	Threads *thread.Service
	Wait    time.Duration
}

// Flush answers GET flush?v=N (EVT-04): it waits until version N is durable. The store shows a version only once it is on
// disk, and lists read the same rows, so it is enough to see it.
func (h *Flush) Flush(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	text := q.Text("v")
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		q.Bad("v", "%q is not the version of a thread: send the v of its record, or of an observation, as v=12", text)
	}
	if err := q.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), h.Wait)
	defer cancel()
	now, err := h.await(ctx, c.Row.ID, v)
	switch {
	case err != nil:
		return err
	case now < v:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
			Message: fmt.Sprintf("thread %q was at version %d after %s, and version %d had not been written: check v, or ask again", c.Name, now, h.Wait, v),
		}}
	}
	return c.WriteJSON(http.StatusOK, runtimev1.FlushedVersion{V: now})
}

// await returns the version of the thread once it is v or later, or the present one when the time has passed.
func (h *Flush) await(ctx context.Context, threadID string, v int64) (now int64, err error) {
	changed := make(chan struct{}, 1)
	defer h.Threads.Store().SubscribeThread(threadID, func(store.Notification) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for {
		row, err := h.Threads.Store().Thread(context.WithoutCancel(ctx), threadID)
		if err != nil {
			return 0, err
		}
		if row.Version >= v || ctx.Err() != nil {
			return row.Version, nil
		}
		select {
		case <-changed:
		case <-ctx.Done(): // reads once more, because a notification may have been lost
		}
	}
}
