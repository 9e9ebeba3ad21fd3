package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

const (
	// EventPage is the most events that are read at once. An event may hold a whole message, so this bounds the memory of one
	// stream.
	EventPage = 50
	// firstPage is how many events are read before their size is known.
	firstPage = 8
	// pageBytes is about how many bytes are read at once, and what is drawn before a read.
	pageBytes = 1 << 20
)

// sink delivers the events of a stream to a client, as server-sent events or over a WebSocket.
type sink interface {
	// send writes events, oldest first, and returns once the client's connection has accepted them.
	send(ctx context.Context, events []store.Event) error
	// ping lets both ends notice when the other is gone.
	ping(ctx context.Context) error
	// close tells the client why the server ends the stream.
	close(ctx context.Context, why runtimev1.StreamClosed)
}

// follower reads a thread's log. It pulls: each stream reads at its client's pace, and notifications only say that there
// may be more. So no event is lost or sent twice where the backlog meets new events, and a slow client costs one page of
// memory. The newest events are read once for all streams of a thread; those that are further behind read the store.
type follower struct {
	handler  *Handler
	threadID string
	after    int64
	newest   int64 // the newest event as the stream begins
	follow   bool
	// lines makes the stream contain only log lines, those of runID when it is set. tail is how many existing lines
	// come first.
	lines bool
	runID string
	tail  int
	page  int // how many events the next page may have
	// next is what after becomes once the page that was read is sent.
	next int64
	// shared has the newest events; nil for a stream that ends where the log does.
	shared *observe.Followed
}

var errSlow = errors.New("the client reads events too slowly")

// run streams until the client disconnects or the server ends the stream.
func (f *follower) run(ctx context.Context, to sink) {
	openStreams.Inc()
	defer openStreams.Dec()
	if !f.follow {
		f.loop(ctx, to, nil)
		return
	}
	f.shared = f.handler.tails.Follow(ctx, f.threadID, f.newest)
	defer f.shared.Close()
	f.loop(ctx, to, f.shared.Ready())
}

func (f *follower) loop(ctx context.Context, to sink, notifications <-chan struct{}) {
	heartbeat := time.NewTicker(f.handler.Heartbeat)
	defer heartbeat.Stop()
	for {
		if why := f.drain(ctx, to); why != nil {
			to.close(ctx, *why)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !f.follow {
			to.close(ctx, *f.closingFrame(runtimev1.ClosedEndOfLog, "the log ends here"))
			return
		}
		select {
		case <-notifications:
		case <-heartbeat.C:
			if to.ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-f.handler.Stopping:
			to.close(ctx, *f.closingFrame(runtimev1.ClosedServerStopping, "the server is stopping: connect again"))
			return
		}
	}
}

// drain sends the events that follow the last one sent. It returns why the stream must end, or nil.
func (f *follower) drain(ctx context.Context, to sink) *runtimev1.StreamClosed {
	for {
		events, done, err := f.drawn(ctx)
		var busy *membudget.BusyError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &busy):
			return f.closingFrame(runtimev1.ClosedNoMemory, busy.Error()+"; connect again to continue")
		case errors.Is(err, store.ErrNotFound):
			return f.closingFrame(runtimev1.ClosedThreadDeleted, "the thread was deleted")
		case err != nil:
			return f.closingFrame(runtimev1.ClosedStoreUnavailable, "the store cannot be read: connect again")
		case len(events) == 0 && f.next > f.after: // all that was read is for others
			f.after = f.next
			continue
		case len(events) == 0:
			return nil
		}
		began := time.Now()
		err = to.send(ctx, events)
		done()
		if err != nil {
			return f.closingFrame(runtimev1.ClosedTooSlow, err.Error())
		}
		f.after = f.next
		if took := time.Since(began); took > f.handler.SlowClient {
			return f.closingFrame(runtimev1.ClosedTooSlow, fmt.Sprintf("%v: one batch took %s; connect again to continue", errSlow, took.Round(time.Millisecond)))
		}
	}
}

// drawn returns the next page, whose memory is drawn until done is called.
func (f *follower) drawn(ctx context.Context) (events []store.Event, done func(), err error) {
	ctx, done = membudget.Part(ctx)
	f.next = f.after
	events, held, err := f.fromShared(ctx)
	if !held && err == nil {
		events, err = f.fromStore(ctx)
	}
	if err != nil || len(events) == 0 {
		done()
		return nil, done, err
	}
	return events, done, nil
}

// fromShared returns what comes next of the events that all followers share. held is false when earlier ones may be missing there.
func (f *follower) fromShared(ctx context.Context) (events []store.Event, held bool, err error) {
	if f.shared == nil || f.tail > 0 {
		return nil, false, nil
	}
	events, held, err = f.shared.After(f.after)
	if len(events) == 0 || err != nil {
		return nil, held, err
	}
	f.next = events[len(events)-1].Seq
	if f.lines {
		events = slices.DeleteFunc(slices.Clone(events), func(e store.Event) bool { return !f.selects(&e) })
	}
	return events, true, membudget.From(ctx).Draw(ctx, 2*sizeOf(events)) // they may no longer be held by the time they are sent
}

// selects reports whether a stream of lines has an event.
func (f *follower) selects(e *store.Event) bool {
	q := store.LineQuery{RunID: f.runID}
	return q.Selects(e)
}

// fromStore returns the next page of the store. The size of a page says how many events the next one may have.
func (f *follower) fromStore(ctx context.Context) ([]store.Event, error) {
	adjust, err := membudget.Reserve(ctx, pageBytes)
	if err != nil {
		return nil, err
	}
	if f.page == 0 {
		f.page = firstPage
	}
	var end int64
	if f.lines && f.shared != nil {
		end = f.shared.End() // what is read now has all lines up to here
	}
	events, err := f.read(ctx, f.page)
	if err != nil {
		return nil, err
	}
	if len(events) < f.page {
		f.next = max(f.next, end)
	}
	if len(events) == 0 {
		return nil, nil
	}
	f.next = max(f.next, events[len(events)-1].Seq)
	size := sizeOf(events)
	f.page = min(max(int(pageBytes/(size/int64(len(events)))), 1), EventPage)
	adjust(2 * size) // once as events, once as they are sent
	return events, nil
}

func sizeOf(events []store.Event) (bytes int64) {
	for i := range events {
		bytes += events[i].Bytes()
	}
	return bytes
}

// read returns the next page.
func (f *follower) read(ctx context.Context, limit int) ([]store.Event, error) {
	from := f.handler.Threads.Store()
	if !f.lines {
		return from.Events(ctx, f.threadID, f.after, limit)
	}
	if f.tail > 0 {
		newest, err := from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Tail: f.tail})
		if err != nil {
			return nil, err
		}
		if f.tail = 0; len(newest) == 0 {
			return nil, nil
		}
		f.after = newest[0].Seq - 1
	}
	return from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Limit: limit})
}

// closingFrame returns the frame with which the server closes the stream, and counts it. A client continues after f.after when it
// connects again.
func (f *follower) closingFrame(reason, message string) *runtimev1.StreamClosed {
	closedStreams.WithLabelValues(reason).Inc()
	return &runtimev1.StreamClosed{Reason: reason, Message: message, Resume: f.after}
}
