package streams

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// lifecycleOptions reads where the list begins. after is the cursor of an event, or latest.
func lifecycleOptions(c *call.Call, watch bool) (o thread.LifecycleOptions, limit int, err error) {
	q, err := c.Query()
	if err != nil {
		return o, 0, err
	}
	q.Flag("watch", false)
	o = thread.LifecycleOptions{Namespace: c.Namespace, After: q.Text("after")}
	if !watch {
		limit = q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	} else if id := c.Request.Header.Get("Last-Event-ID"); id != "" { // a browser that reconnects sends it; it is newer than the parameter
		o.After = id
	}
	if o.After == runtimev1.AfterLatest {
		o.After, o.Latest = "", true
	}
	return o, limit, q.Check()
}

// ListLifecycle answers GET lifecycle: the lifecycle events of the namespace's threads and sessions (STA-06).
func (h *Handler) ListLifecycle(c *call.Call) error {
	o, limit, err := lifecycleOptions(c, false)
	if err != nil {
		return err
	}
	list := runtimev1.LifecycleList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindLifecycleList), Events: []runtimev1.LifecycleEvent{}, Next: o.After}
	if o.Latest {
		if list.Next, err = h.Threads.LifecycleEnd(c.Context()); err != nil {
			return err
		}
		return c.WriteJSON(http.StatusOK, list)
	}
	for e, err := range h.Threads.Lifecycle(c.Context(), o) {
		if err != nil {
			return err
		}
		if list.HasMore = len(list.Events) == limit; list.HasMore {
			break
		}
		event := lifecycleOf(e)
		if err := c.CleanItem(e.Namespace, &event); err != nil {
			return err
		}
		list.Events, list.Next = append(list.Events, event), e.Cursor
	}
	return c.WriteJSON(http.StatusOK, list)
}

func lifecycleOf(e thread.LifecycleEvent) runtimev1.LifecycleEvent {
	return runtimev1.LifecycleEvent{
		Cursor: e.Cursor, Type: e.Type, Namespace: e.Namespace, ThreadID: e.ThreadID, ThreadName: e.ThreadName, AgentID: e.Agent,
		SessionID: e.RunID, Reason: e.Reason, CreatedAt: e.CreatedAt,
	}
}

// WatchLifecycle answers GET lifecycle?watch=true: the events as server-sent events, until the client disconnects. It
// continues after the cursor that the client names, so that no event is lost or sent twice.
func (h *Handler) WatchLifecycle(c *call.Call) error {
	o, _, err := lifecycleOptions(c, true)
	if err != nil {
		return err
	}
	ctx := c.Context()
	from, err := h.Threads.LifecycleQuery(ctx, o) // before the answer begins, so that a client that has seen its head misses no later event
	if err != nil {
		return err
	}
	out := h.startSSE(c)
	if out.sendRetry() != nil {
		return nil
	}
	openStreams.Inc()
	defer openStreams.Dec()
	w := h.lifecycle.Watch(from)
	defer w.Close()
	heartbeat := time.NewTicker(h.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-w.Ready():
			if why := h.sendLifecycle(c, w, out); why != nil {
				closedStreams.WithLabelValues(why.Reason).Inc()
				out.close(ctx, *why)
				return nil
			}
		case <-heartbeat.C:
			if out.ping(ctx) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		case <-h.Stopping:
			closedStreams.WithLabelValues(runtimev1.ClosedServerStopping).Inc()
			out.close(ctx, runtimev1.StreamClosed{Reason: runtimev1.ClosedServerStopping, Message: "the server is stopping: " + continueAfter})
			return nil
		}
	}
}

// continueAfter is what a client does whose stream of lifecycle events has ended.
const continueAfter = "connect again with the cursor of your last event"

// sendLifecycle sends the events that wait. It returns why the stream must end, or nil.
func (h *Handler) sendLifecycle(c *call.Call, w *observe.LifecycleWatch, out *sseSink) *runtimev1.StreamClosed {
	ctx := c.Context()
	for ctx.Err() == nil {
		events, err := w.Next(ctx)
		out.buf.Reset()
		for i := range events {
			if err == nil {
				err = appendLifecycle(c, out, &events[i])
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			klog.FromContext(ctx).Error(err, "The lifecycle feed cannot be read")
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedStoreUnavailable, Message: "the store cannot be read: " + continueAfter}
		case len(events) == 0:
			return nil
		}
		began := time.Now()
		if err := out.write(out.buf.Bytes()); err != nil {
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedTooSlow, Message: err.Error()}
		}
		if took := time.Since(began); took > h.SlowClient {
			return &runtimev1.StreamClosed{
				Reason:  runtimev1.ClosedTooSlow,
				Message: fmt.Sprintf("%v: one batch took %s; %s", errSlow, took.Round(time.Millisecond), continueAfter),
			}
		}
		if out.buf.Cap() > keptBuffer {
			out.buf = bytes.Buffer{}
		}
	}
	return nil
}

// appendLifecycle appends an event without the secrets of its namespace.
func appendLifecycle(c *call.Call, out *sseSink, e *store.LifecycleEvent) error {
	entry := thread.LifecycleEventOf(*e)
	event := lifecycleOf(entry)
	if err := c.CleanItem(e.Namespace, &event); err != nil {
		return err
	}
	return out.append(entry.Cursor, e.Type, event)
}
