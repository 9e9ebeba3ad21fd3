// Package streams serves what a client follows: events, values, log lines and the lifecycle of threads, as server-sent events or
// over a WebSocket.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// Handler serves the events of a thread, its value, its log lines and the lifecycle of all threads.
type Handler struct {
	Threads *thread.Service
	Options

	tails     *observe.Tails
	observed  *observe.Hub
	changes   *observe.Feed
	lifecycle *observe.Lifecycle
	items     Items
}

// New returns a Handler. record and items return threads as clients see them; secrets are removed from what clients
// observe.
func New(threads *thread.Service, record Record, items Items, secrets *redact.Registry, o Options) *Handler {
	h := &Handler{Threads: threads, Options: o, items: items}
	if threads != nil { // there is none where only the routes are of interest
		r := &valueReader{store: threads.Store(), record: record, secrets: secrets}
		h.tails = observe.NewTails(observe.TailOptions{Subscribe: threads.Store().SubscribeThread, Read: threads.Store().Events, Recheck: o.Heartbeat})
		h.observed = observe.NewHub(observe.Options{Subscribe: threads.Store().SubscribeThread, Read: r.read, Recheck: o.Heartbeat})
		h.changes = observe.NewFeed(observe.FeedOptions{Subscribe: threads.Store().Subscribe, Read: readThreads(threads.Store())})
		h.lifecycle = observe.NewLifecycle(observe.LifecycleOptions{Subscribe: threads.Store().Subscribe, Read: threads.Store().Lifecycle})
	}
	return h
}

// Options are the limits of streams, and what they may show.
type Options struct {
	Heartbeat       time.Duration   // the interval of pings to clients
	SlowClient      time.Duration   // a batch of events that takes longer ends the stream
	TransferTimeout time.Duration   // bounds one piece of a stream
	Stopping        <-chan struct{} // closed when the server stops
	// Shows reports whether a list of the threads of a namespace, or of all when it is "", may have a thread.
	Shows func(ctx context.Context, namespace string, t *store.Thread) (bool, error)
}

// Events answers GET events (EVT-01, EVT-03): the events after a sequence number, then new events until the
// client disconnects. With follow=false it ends at the present end of the log.
func (h *Handler) Events(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	f := &follower{handler: h, threadID: c.Row.ID, newest: c.Row.LastSeq, follow: q.Flag("follow", true)}
	f.after = afterParameter(q, c.Request.Header.Get("Last-Event-ID"), c.Row.LastSeq)
	if err := q.Check(); err != nil {
		return err
	}
	if c.IsWebSocket() {
		return h.serveWebSocket(c, f)
	}
	return h.serveSSE(c, f)
}

// Logs answers GET logs: the log lines of a thread, or of one of its runs.
func (h *Handler) Logs(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	f := &follower{handler: h, threadID: c.Row.ID, newest: c.Row.LastSeq, follow: q.Flag("follow", false), lines: true}
	f.after = afterParameter(q, c.Request.Header.Get("Last-Event-ID"), c.Row.LastSeq)
	f.runID = q.Text("runId")
	f.tail = q.Number("tail", 0, 0, runtimev1.MaxPageSize)
	if err := q.Check(); err != nil {
		return err
	}
	if f.runID != "" {
		_, err := h.Threads.Store().Run(c.Context(), c.Row.ID, f.runID)
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

// Emit answers POST events: the event reaches every client that follows the thread (EVT-01).
func (h *Handler) Emit(c *call.Call) error {
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
