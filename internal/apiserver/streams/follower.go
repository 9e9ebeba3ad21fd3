package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// EventPage is the number of events read at once. An event may hold a whole message, so this bounds the memory of one
// stream.
const EventPage = 50

// sink delivers the events of a stream to a client, as server-sent events or over a WebSocket.
type sink interface {
	// send writes events, oldest first, and returns once the client's connection has accepted them.
	send(ctx context.Context, events []store.Event) error
	// ping lets both ends notice when the other is gone.
	ping(ctx context.Context) error
	// close tells the client why the server ends the stream.
	close(ctx context.Context, why runtimev1.StreamClosed)
}

// follower reads a thread's log. It pulls: each stream reads the store at its client's pace, and notifications only
// say that there may be more. So no event is lost or sent twice where the backlog meets new events, and a slow client
// costs one page of memory.
type follower struct {
	handler  *Handler
	threadID string
	after    int64
	follow   bool
	// lines makes the stream contain only log lines, those of runID when it is set. tail is how many existing lines
	// come first.
	lines bool
	runID string
	tail  int
}

var errSlow = errors.New("the client reads events too slowly")

// run streams until the client disconnects or the server ends the stream.
func (f *follower) run(ctx context.Context, to sink) {
	openStreams.Inc()
	defer openStreams.Dec()
	notifications, unsubscribe := f.subscribe()
	defer unsubscribe()
	f.loop(ctx, to, notifications)
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
			to.close(ctx, f.closed(runtimev1.ClosedEndOfLog, "the log ends here"))
			return
		}
		select {
		case <-notifications:
		case <-heartbeat.C: // also reads again, because a notification may have been lost
			if to.ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-f.handler.Stopping:
			to.close(ctx, f.closed(runtimev1.ClosedServerStopping, "the server is stopping: connect again"))
			return
		}
	}
}

func (f *follower) subscribe() (notifications <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	return ch, f.handler.Threads.Store().SubscribeThread(f.threadID, func(store.Notification) {
		select {
		case ch <- struct{}{}:
		default:
		}
	})
}

// drain sends the events that follow the last one sent. It returns why the stream must end, or nil.
func (f *follower) drain(ctx context.Context, to sink) *runtimev1.StreamClosed {
	for {
		events, err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrNotFound):
			return f.why(runtimev1.ClosedThreadDeleted, "the thread was deleted")
		case err != nil:
			return f.why(runtimev1.ClosedStoreUnavailable, "the store cannot be read: connect again")
		case len(events) == 0:
			return nil
		}
		began := time.Now()
		if err := to.send(ctx, events); err != nil {
			return f.why(runtimev1.ClosedTooSlow, err.Error())
		}
		f.after = events[len(events)-1].Seq
		if took := time.Since(began); took > f.handler.SlowClient {
			return f.why(runtimev1.ClosedTooSlow, fmt.Sprintf("%v: one batch took %s; connect again to continue", errSlow, took.Round(time.Millisecond)))
		}
	}
}

// read returns the next page.
func (f *follower) read(ctx context.Context) ([]store.Event, error) {
	from := f.handler.Threads.Store()
	if !f.lines {
		return from.Events(ctx, f.threadID, f.after, EventPage)
	}
	if f.tail > 0 {
		newest, err := from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Tail: f.tail})
		if err != nil || len(newest) == 0 {
			return newest, err
		}
		f.tail, f.after = 0, newest[0].Seq-1
	}
	return from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Limit: EventPage})
}

func (f *follower) closed(reason, message string) runtimev1.StreamClosed {
	closedStreams.WithLabelValues(reason).Inc()
	return runtimev1.StreamClosed{Reason: reason, Message: message, Resume: f.after}
}

func (f *follower) why(reason, message string) *runtimev1.StreamClosed {
	c := f.closed(reason, message)
	return &c
}
