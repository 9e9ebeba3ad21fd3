package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// observable are the parts of a value that a client may ask for, and defaultParts those that it gets without asking.
var (
	observable   = []string{runtimev1.ObserveThread, runtimev1.ObserveMessages, runtimev1.ObserveState, runtimev1.ObserveValues}
	defaultParts = []string{runtimev1.ObserveThread, runtimev1.ObserveMessages, runtimev1.ObserveState}
)

// keptBuffer is the size of the largest buffer that a stream keeps while it waits for a change.
const keptBuffer = 64 << 10

// observer delivers the value of a thread and its patches to a client.
type observer interface {
	update(ctx context.Context, u observe.Update) error
	ping(ctx context.Context) error
	close(ctx context.Context, why runtimev1.StreamClosed)
}

// Observe answers GET observe (EVT-02): the present value of the thread, then patches until the client disconnects. With
// follow=false it ends after the value.
func (h *Handler) Observe(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	follow := q.Flag("follow", true)
	parts := partsOf(q)
	if err := q.Check(); err != nil {
		return err
	}
	if !c.IsWebSocket() {
		out := h.startSSE(c)
		if out.sendRetry() == nil {
			h.observe(c.Context(), c.Row.ID, parts, follow, out)
		}
		return nil
	}
	conn, err := c.AcceptWebSocket(runtimev1.ObserveSubprotocol)
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(c.Context()) // the client sends nothing; ctx ends when it disconnects
	h.observe(ctx, c.Row.ID, parts, follow, &wsSink{conn: conn, timeout: h.TransferTimeout, clean: c.Clean, again: "connect again for the present value"})
	return nil
}

// partsOf returns the parts that a client asks for, in a fixed order, so that clients who ask for the same share patches.
func partsOf(q *call.Query) []string {
	text, ok := q.Get("include")
	if !ok {
		return defaultParts
	}
	asked := map[string]bool{runtimev1.ObserveThread: true}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); !slices.Contains(observable, part) {
			q.Bad("include", "%q is not one of %s: write those that you want with commas between them", part, strings.Join(observable, ", "))
		}
		asked[part] = true
	}
	return slices.DeleteFunc(slices.Clone(observable), func(p string) bool { return !asked[p] })
}

func (h *Handler) observe(ctx context.Context, threadID string, parts []string, follow bool, to observer) {
	openStreams.Inc()
	defer openStreams.Dec()
	w := h.observed.Watch(ctx, threadID, parts)
	defer w.Close()
	heartbeat := time.NewTicker(h.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-w.Ready():
			if why := h.sendUpdates(ctx, w, follow, to); why != nil {
				closedStreams.WithLabelValues(why.Reason).Inc()
				to.close(ctx, *why)
				return
			}
		case <-heartbeat.C:
			if to.ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-h.Stopping:
			to.close(ctx, runtimev1.StreamClosed{Reason: runtimev1.ClosedServerStopping, Message: "the server is stopping: connect again for the present value"})
			return
		}
	}
}

// sendUpdates sends what waits. It returns why the stream must end, or nil.
func (h *Handler) sendUpdates(ctx context.Context, w *observe.Watch, follow bool, to observer) *runtimev1.StreamClosed {
	why := func(reason, format string, args ...any) *runtimev1.StreamClosed {
		return &runtimev1.StreamClosed{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	for ctx.Err() == nil {
		u, ok, err := w.Take()
		switch {
		case errors.Is(err, observe.ErrTooSlow):
			return why(runtimev1.ClosedTooSlow, "the changes were dropped, because too many waited for you: connect again for the present value")
		case errors.Is(err, store.ErrNotFound):
			return why(runtimev1.ClosedThreadDeleted, "the thread was deleted")
		case membudget.Refused(err):
			return why(runtimev1.ClosedNoMemory, "%v; connect again for the present value", err)
		case err != nil:
			klog.FromContext(ctx).Error(err, "A thread that clients observe cannot be read")
			return why(runtimev1.ClosedStoreUnavailable, "the store cannot be read: connect again for the present value")
		case !ok:
			return nil
		}
		part, done := membudget.Part(ctx)
		if err := membudget.From(part).Draw(part, 2*int64(len(u.JSON))); err != nil { // as it is, and as it is sent
			done()
			return why(runtimev1.ClosedNoMemory, "%v; connect again for the present value", err)
		}
		began := time.Now()
		err = to.update(ctx, u)
		done()
		if err != nil {
			return why(runtimev1.ClosedTooSlow, "%v", err)
		}
		if took := time.Since(began); took > h.SlowClient {
			return why(runtimev1.ClosedTooSlow, "you read changes too slowly: one took %s; connect again for the present value", took.Round(time.Millisecond))
		}
		if !follow {
			return why(runtimev1.ClosedEndOfLog, "this is the present value")
		}
	}
	return nil
}

func (s *sseSink) update(_ context.Context, u observe.Update) error {
	name := runtimev1.ObserveValueEvent
	if u.Patch {
		name = runtimev1.ObservePatchEvent
	}
	s.buf.Reset()
	s.appendJSON("", name, u.JSON)
	err := s.write(s.buf.Bytes())
	if s.buf.Cap() > keptBuffer {
		s.buf = bytes.Buffer{}
	}
	return err
}

func (s *wsSink) update(ctx context.Context, u observe.Update) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, u.JSON)
}
