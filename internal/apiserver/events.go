package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// streamHandler serves the events of a thread, its log lines and the lifecycle of all threads.
type streamHandler struct {
	threads *thread.Service
	streamOptions
}

// streamOptions are the limits of streams.
type streamOptions struct {
	heartbeat       time.Duration   // the interval of pings to clients
	slowClient      time.Duration   // a batch of events that takes longer ends the stream
	transferTimeout time.Duration   // bounds one piece of a stream
	stopping        <-chan struct{} // closed when the server stops
}

// eventPage is the number of events read at once. An event may hold a whole message, so this bounds the memory of one
// stream.
const eventPage = 50

// sink delivers the events of a stream to a client, as server-sent events or over a WebSocket.
type sink interface {
	// send writes events, oldest first, and returns once the client's connection has accepted them.
	send(ctx context.Context, events []store.Event) error
	// ping lets both ends notice when the other is gone.
	ping(ctx context.Context) error
	// close tells the client why the server ends the stream.
	close(ctx context.Context, why runtimev1.StreamClosed)
}

// streamEvents answers GET events (EVT-01, EVT-03): the events after a sequence number, then new events until the
// client disconnects. With follow=false it ends at the present end of the log.
func (h *streamHandler) streamEvents(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	f := &follower{handler: h, threadID: c.Row.ID, follow: q.Flag("follow", true)}
	f.after = afterParameter(q, c.Request.Header.Get("Last-Event-ID"), c.Row.LastSeq)
	if err := q.Check(); err != nil {
		return err
	}
	if c.IsWebSocket() {
		return h.serveWebSocket(c, f)
	}
	return h.serveSSE(c, f)
}

// streamLogs answers GET logs: the log lines of a thread, or of one of its runs.
func (h *streamHandler) streamLogs(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	f := &follower{handler: h, threadID: c.Row.ID, follow: q.Flag("follow", false), lines: true}
	f.after = afterParameter(q, c.Request.Header.Get("Last-Event-ID"), c.Row.LastSeq)
	f.runID = q.Text("runId")
	f.tail = q.Number("tail", 0, 0, runtimev1.MaxPageSize)
	if err := q.Check(); err != nil {
		return err
	}
	if f.runID != "" {
		_, err := h.threads.Store().Run(c.Context(), c.Row.ID, f.runID)
		if errors.Is(err, store.ErrNotFound) {
			return status.NotFound(c.Name, "thread %q has no run %q: GET runs lists them", c.Name, f.runID)
		}
		if err != nil {
			return err
		}
	}
	if c.IsWebSocket() {
		return h.serveWebSocket(c, f)
	}
	return h.serveSSE(c, f)
}

// afterParameter returns where the stream begins. Last-Event-ID takes precedence over the parameter after, because a
// browser that reconnects repeats the parameter and Last-Event-ID is newer.
func afterParameter(q *call.Query, lastEventID string, newest int64) int64 {
	field, v := "after", q.Text("after")
	if lastEventID != "" {
		field, v = "Last-Event-ID", lastEventID
	}
	switch v {
	case "":
		return 0
	case runtimev1.AfterLatest:
		return newest
	}
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil || n < 0:
		q.Bad(field, "%q is neither the sequence number of an event nor %q", v, runtimev1.AfterLatest)
	case n > newest:
		q.Bad(field, "the newest event is %d: %d has not happened in this thread", newest, n)
	}
	return n
}

// follower reads a thread's log. It pulls: each stream reads the store at its client's pace, and notifications only
// say that there may be more. So no event is lost or sent twice where the backlog meets new events, and a slow client
// costs one page of memory.
type follower struct {
	handler  *streamHandler
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
	heartbeat := time.NewTicker(f.handler.heartbeat)
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
		case <-f.handler.stopping:
			to.close(ctx, f.closed(runtimev1.ClosedServerStopping, "the server is stopping: connect again"))
			return
		}
	}
}

func (f *follower) subscribe() (notifications <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	return ch, f.handler.threads.Store().Subscribe(func(h store.Notification) {
		if h.About(f.threadID) {
			select {
			case ch <- struct{}{}:
			default:
			}
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
		if took := time.Since(began); took > f.handler.slowClient {
			return f.why(runtimev1.ClosedTooSlow, fmt.Sprintf("%v: one batch took %s; connect again to continue", errSlow, took.Round(time.Millisecond)))
		}
	}
}

// read returns the next page.
func (f *follower) read(ctx context.Context) ([]store.Event, error) {
	from := f.handler.threads.Store()
	if !f.lines {
		return from.Events(ctx, f.threadID, f.after, eventPage)
	}
	if f.tail > 0 {
		newest, err := from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Tail: f.tail})
		if err != nil || len(newest) == 0 {
			return newest, err
		}
		f.tail, f.after = 0, newest[0].Seq-1
	}
	return from.Lines(ctx, f.threadID, store.LineQuery{After: f.after, RunID: f.runID, Limit: eventPage})
}

func (f *follower) closed(reason, message string) runtimev1.StreamClosed {
	closedStreams.WithLabelValues(reason).Inc()
	return runtimev1.StreamClosed{Reason: reason, Message: message, Resume: f.after}
}

func (f *follower) why(reason, message string) *runtimev1.StreamClosed {
	c := f.closed(reason, message)
	return &c
}

// emitEvent answers POST events: the event reaches every client that follows the thread (EVT-01).
func (h *streamHandler) emitEvent(c *call.Call) error {
	var in runtimev1.NewEvent
	if err := c.Decode(&in, false); err != nil {
		return err
	}
	if len(in.Data) == 0 {
		in.Data = json.RawMessage("null")
	}
	if err := c.Thread.Emit(c.Context(), in.Event, in.Data); err != nil {
		return err
	}
	return c.WriteSuccess()
}

func eventOf(e *store.Event) runtimev1.Event { return runtimev1.Event(*e) }
