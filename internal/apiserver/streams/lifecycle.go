package streams

import (
	"context"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/thread"
)

// lifecycleQuery reads where the list begins. after is the cursor of an event, or latest.
func lifecycleQuery(c *call.Call, follow bool) (o thread.LifecycleOptions, limit int, err error) {
	q, err := c.Query()
	if err != nil {
		return o, 0, err
	}
	q.Flag("watch", false)
	o = thread.LifecycleOptions{Namespace: c.Namespace, After: q.Text("after"), Follow: follow}
	if !follow {
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
	o, limit, err := lifecycleQuery(c, false)
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
	o, _, err := lifecycleQuery(c, true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	if o.Latest { // fixed before the answer begins, so that a client that has seen its head misses no later event
		if o.After, err = h.Threads.LifecycleEnd(ctx); err != nil {
			return err
		}
		o.Latest = false
	}
	if err := thread.CheckCursor(o.After); err != nil {
		return err
	}
	out := h.startSSE(c)
	if out.retry() != nil {
		return nil
	}
	events := make(chan thread.LifecycleEvent)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		for e, err := range h.Threads.Lifecycle(ctx, o) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	heartbeat := time.NewTicker(h.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				select {
				case err := <-failed:
					klog.FromContext(ctx).Error(err, "The lifecycle feed cannot be read")
					out.close(ctx, runtimev1.StreamClosed{Reason: runtimev1.ClosedStoreUnavailable, Message: "the store cannot be read: connect again"})
				default:
				}
				return nil
			}
			out.buf.Reset()
			event := lifecycleOf(e)
			if err := c.CleanItem(e.Namespace, &event); err != nil {
				return nil // the answer has begun; the client comes again
			}
			if out.append(e.Cursor, e.Type, event) != nil || out.write(out.buf.Bytes()) != nil {
				return nil
			}
		case <-heartbeat.C:
			if out.ping(ctx) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		case <-h.Stopping:
			out.close(ctx, runtimev1.StreamClosed{Reason: runtimev1.ClosedServerStopping, Message: "the server is stopping: connect again"})
			return nil
		}
	}
}
