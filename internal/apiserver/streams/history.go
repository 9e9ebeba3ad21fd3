package streams

import (
	"bytes"
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// Items returns threads as items of lists.
type Items func(ctx context.Context, threads []store.Thread) ([]runtimev1.ThreadHistory, error)

// readThreads returns the threads that exist of those with these ids.
func readThreads(from store.Store) func(ctx context.Context, ids []string) ([]store.Thread, error) {
	return func(ctx context.Context, ids []string) ([]store.Thread, error) {
		var rows []store.Thread
		for _, id := range ids {
			row, err := from.Thread(ctx, id)
			switch {
			case err == nil:
				rows = append(rows, *row)
			case !errors.Is(err, store.ErrNotFound):
				return nil, err
			}
		}
		return rows, nil
	}
}

// WatchHistory answers GET history?watch=true (EVT-04): the items of the list that change, in small batches, at most every
// 100 ms, until the client disconnects.
func (h *Handler) WatchHistory(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	q.Flag("watch", true)
	for _, filter := range []string{"agent", "user", "task", "archived", "limit", "offset", "continue"} {
		if _, ok := q.Get(filter); ok {
			q.Bad(filter, "a watch has all threads: leave it out, and choose among the items that come")
		}
	}
	if err := q.Check(); err != nil {
		return err
	}
	ctx := c.Context()
	w := h.changes.Watch() // before the head of the answer, so that a client that has seen it misses nothing
	defer w.Close()
	out := h.startSSE(c)
	if out.retry() != nil {
		return nil
	}
	openStreams.Inc()
	defer openStreams.Dec()
	heartbeat := time.NewTicker(h.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-w.Ready():
			if why := h.sendItems(ctx, c.Namespace, w, out); why != nil {
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
			out.close(ctx, runtimev1.StreamClosed{Reason: runtimev1.ClosedServerStopping, Message: "the server is stopping: watch again, then list"})
			return nil
		}
	}
}

// sendItems sends the batches that wait. It returns why the stream must end, or nil.
func (h *Handler) sendItems(ctx context.Context, namespace string, w *observe.FeedWatch, out *sseSink) *runtimev1.StreamClosed {
	for ctx.Err() == nil {
		b, ok, err := w.Take()
		if err == nil && !ok {
			return nil
		}
		var items []runtimev1.ThreadHistory
		if err == nil && !b.Reset {
			var rows []store.Thread
			if rows, err = h.shown(ctx, namespace, b.Threads); err == nil && len(rows) == 0 {
				continue
			}
			if err == nil {
				items, err = h.items(ctx, rows)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, observe.ErrTooSlow):
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedTooSlow, Message: "changes were dropped, because too many waited for you: watch again, then list"}
		case err != nil:
			klog.FromContext(ctx).Error(err, "The threads of a list cannot be read")
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedStoreUnavailable, Message: "the store cannot be read: watch again, then list"}
		}
		list := runtimev1.ThreadHistoryList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindThreadHistoryList), Items: items}
		name := runtimev1.HistoryChangedEvent
		if b.Reset {
			name, list.Items = runtimev1.HistoryResetEvent, []runtimev1.ThreadHistory{}
		}
		out.buf.Reset()
		if out.append("", name, list) != nil || out.write(out.buf.Bytes()) != nil {
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedTooSlow, Message: "you read changes too slowly: watch again, then list"}
		}
		if out.buf.Cap() > keptBuffer {
			out.buf = bytes.Buffer{}
		}
	}
	return nil
}

// shown returns those threads that a list of the threads of a namespace, or of all when it is "", has.
func (h *Handler) shown(ctx context.Context, namespace string, all []store.Thread) (rows []store.Thread, err error) {
	for i := range all {
		ok := namespace == "" || all[i].Namespace == namespace
		if ok {
			ok, err = h.Shows(ctx, namespace, &all[i])
		}
		if err != nil {
			return nil, err
		}
		if ok {
			rows = append(rows, all[i])
		}
	}
	return rows, nil
}
