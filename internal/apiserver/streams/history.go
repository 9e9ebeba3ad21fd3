package streams

import (
	"bytes"
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// Items returns threads as items of lists.
type Items func(ctx context.Context, threads []store.Thread) ([]runtimev1.ThreadHistory, error)

// maxItemBytes ends a batch of items: a thread may have more than a mebibyte of what an item shows of it.
const maxItemBytes = 2 << 20

// readThreads returns the threads that exist of those with these ids, without what no item shows. It ends early when they are large.
func readThreads(from store.Store) func(ctx context.Context, ids []string) ([]store.Thread, int, error) {
	return func(ctx context.Context, ids []string) ([]store.Thread, int, error) {
		var rows []store.Thread
		left := int64(maxItemBytes)
		for i, id := range ids {
			if left <= 0 {
				return rows, i, nil
			}
			row, err := from.Thread(ctx, id)
			switch {
			case err == nil:
				row.Arguments, row.Fields.Draft, row.Fields.ActivatedSkills = nil, "", nil
				rows = append(rows, *row)
				left -= row.Bytes()
			case !errors.Is(err, store.ErrNotFound):
				return nil, 0, err
			}
		}
		return rows, len(ids), nil
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
	w := h.changes.Watch(ctx, c.Namespace) // before the head of the answer, so that a client that has seen it misses nothing
	defer w.Close()
	out := h.startSSE(c)
	if out.sendRetry() != nil {
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

// errUnread means that a client does not read what is sent.
var errUnread = errors.New("the client reads too slowly")

// sendItems sends the batches that wait. It returns why the stream must end, or nil.
func (h *Handler) sendItems(ctx context.Context, namespace string, w *observe.FeedWatch, out *sseSink) *runtimev1.StreamClosed {
	for ctx.Err() == nil {
		b, ok, err := w.Take()
		if err == nil && !ok {
			return nil
		}
		if err == nil {
			err = h.sendBatch(ctx, namespace, b, out)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, observe.ErrTooSlow):
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedTooSlow, Message: "changes were dropped, because too many waited for you: watch again, then list"}
		case errors.Is(err, errUnread):
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedTooSlow, Message: "you read changes too slowly: watch again, then list"}
		case membudget.Refused(err):
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedNoMemory, Message: err.Error() + "; watch again, then list"}
		case err != nil:
			klog.FromContext(ctx).Error(err, "The threads of a list cannot be read")
			return &runtimev1.StreamClosed{Reason: runtimev1.ClosedStoreUnavailable, Message: "the store cannot be read: watch again, then list"}
		}
	}
	return nil
}

// sendBatch sends a batch, unless the list has none of its threads. It draws the items twice: as they are, and as they are sent.
func (h *Handler) sendBatch(ctx context.Context, namespace string, b observe.Batch, out *sseSink) error {
	part, done := membudget.Part(ctx)
	defer done()
	name := runtimev1.HistoryResetEvent
	list := runtimev1.ThreadHistoryList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindThreadHistoryList), Items: []runtimev1.ThreadHistory{}}
	if !b.Reset {
		rows, err := h.threadsShown(ctx, namespace, b.Threads)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := membudget.From(part).Draw(part, 2*b.Bytes()); err != nil {
			return err
		}
		name = runtimev1.HistoryChangedEvent
		if list.Items, err = h.items(part, rows); err != nil {
			return err
		}
	}
	out.buf.Reset()
	if out.append("", name, list) != nil || out.write(out.buf.Bytes()) != nil {
		return errUnread
	}
	if out.buf.Cap() > keptBuffer {
		out.buf = bytes.Buffer{}
	}
	return nil
}

// threadsShown returns those threads that a list of the threads of a namespace, or of all when it is "", has.
func (h *Handler) threadsShown(ctx context.Context, namespace string, all []store.Thread) (rows []store.Thread, err error) {
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
