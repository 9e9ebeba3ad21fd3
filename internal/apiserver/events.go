package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// eventPage is how many events are read at once. An event may hold a whole message, so it bounds the memory
// that one stream costs.
const eventPage = 50

// sink takes a stream's events to a client, by server-sent events or WebSocket.
type sink interface {
	// send writes events, oldest first, and returns once the client's connection has taken them.
	send(ctx context.Context, events []store.Event) error
	// ping shows both ends that the other is there.
	ping(ctx context.Context) error
	// close says why the server ends the stream.
	close(ctx context.Context, why runtimev1.StreamClosed)
}

// streamEvents answers GET events (EVT-01, EVT-03): what has happened after a sequence number, then what
// happens, until the client leaves. With follow=false it ends at the present end of the log.
func (s *Server) streamEvents(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	f := &follower{server: s, threadID: c.row.ID, follow: q.flag("follow", true)}
	f.after = afterParameter(q, c.r.Header.Get("Last-Event-ID"), c.row.LastSeq)
	if err := q.check(); err != nil {
		return err
	}
	if isWebSocket(c.r) {
		return s.serveWebSocket(c, f)
	}
	return s.serveSSE(c, f)
}

// streamLogs answers GET logs: the log lines of a thread, or of one of its runs.
func (s *Server) streamLogs(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	f := &follower{server: s, threadID: c.row.ID, follow: q.flag("follow", false), lines: true}
	f.after = afterParameter(q, c.r.Header.Get("Last-Event-ID"), c.row.LastSeq)
	f.runID = q.text("runId")
	f.tail = q.number("tail", 0, 0, runtimev1.MaxPageSize)
	if err := q.check(); err != nil {
		return err
	}
	if f.runID != "" {
		_, err := s.opts.Threads.Store().Run(c.r.Context(), c.row.ID, f.runID)
		if errors.Is(err, store.ErrNotFound) {
			return notFound(c.name, "thread %q has no run %q: GET runs lists them", c.name, f.runID)
		}
		if err != nil {
			return err
		}
	}
	if isWebSocket(c.r) {
		return s.serveWebSocket(c, f)
	}
	return s.serveSSE(c, f)
}

// afterParameter reads where to begin: the parameter after, which a browser that reconnects repeats, loses
// against Last-Event-ID, which is newer.
func afterParameter(q *query, lastEventID string, newest int64) int64 {
	field, v := "after", q.text("after")
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
		q.bad(field, "%q is neither the sequence number of an event nor %q", v, runtimev1.AfterLatest)
	case n > newest:
		q.bad(field, "the newest event is %d: %d has not happened in this thread", newest, n)
	}
	return n
}

// follower reads a thread's log. It pulls: each stream reads at its client's pace from the store, hints only
// say that there may be more. So nothing is lost or doubled where the backlog ends and the present begins,
// and a slow client costs one page of memory.
type follower struct {
	server   *Server
	threadID string
	after    int64
	follow   bool
	// lines has the log lines alone streamed, of runID where it is set. tail is how many of the present ones come first.
	lines bool
	runID string
	tail  int
}

var errSlow = errors.New("the client takes events too slowly")

// run streams until the client leaves or the server ends it.
func (f *follower) run(ctx context.Context, to sink) {
	openStreams.Inc()
	defer openStreams.Dec()
	hints, unsubscribe := f.subscribe()
	defer unsubscribe()
	f.loop(ctx, to, hints)
}

func (f *follower) loop(ctx context.Context, to sink, hints <-chan struct{}) {
	heartbeat := time.NewTicker(f.server.opts.heartbeat)
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
		case <-hints:
		case <-heartbeat.C: // reads again too: a hint may have been lost
			if to.ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-f.server.stopping:
			to.close(ctx, f.closed(runtimev1.ClosedServerStopping, "the server is stopping: connect again"))
			return
		}
	}
}

func (f *follower) subscribe() (hints <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	return ch, f.server.opts.Threads.Store().Subscribe(func(h store.Hint) {
		if h.About(f.threadID) {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	})
}

// drain sends what the log has after the last event sent. It gives why the stream ends, if it does.
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
		if took := time.Since(began); took > f.server.opts.slowClient {
			return f.why(runtimev1.ClosedTooSlow, fmt.Sprintf("%v: one batch took %s; connect again to go on", errSlow, took.Round(time.Millisecond)))
		}
	}
}

// read gives the next page.
func (f *follower) read(ctx context.Context) ([]store.Event, error) {
	from := f.server.opts.Threads.Store()
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

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}
