package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/observe"
)

const (
	// eventPage is the largest number of events that are read at once.
	eventPage = 50
	// firstPage is how many events are read first. Their size says how many the next read may fetch.
	firstPage = 4
	// pageBytes is about how many bytes the next reads fetch. It is also what is drawn before a read.
	pageBytes = 1 << 20
)

// Statuses of an answer.
const (
	statusSucceeded = "succeeded"
	statusRunning   = "running" // the agent works on
)

// Answer is the answer to POST v1/message.
type Answer struct {
	// Status is succeeded, or running when the agent was still at work when the time had passed.
	Status string `json:"status"`
	// Content is what the agent said, one message below the other.
	Content  string    `json:"content"`
	Messages []Message `json:"messages"`
	// MessageID is the client's message.
	MessageID string `json:"messageId"`
	Session   string `json:"session"`
	// Run is the run that answered.
	Run string `json:"run,omitempty"`

	usage store.RunUsage
}

// between is what stands between two messages of an answer.
const between = "\n\n"

// text returns what the agent said, one message below the other.
func (a *Answer) text() string {
	texts := make([]string, len(a.Messages))
	for i, m := range a.Messages {
		texts[i] = m.Content
	}
	return strings.Join(texts, between)
}

// piece is a piece of a message that the model is at.
type piece struct {
	messageID string
	Text      string
	// Reset says that the model has begun the message again.
	Reset bool
}

// delta is a piece of a message as clients get it. A client shows the pieces of one message only. When MessageID changes before the message
// has come, a run went on after a crash and says the message again.
type delta struct {
	MessageID string `json:"messageId"`
	Text      string `json:"text"`
	Reset     bool   `json:"reset,omitempty"` // the earlier pieces of the message do not count
}

// sendDelta sends a piece if it has something for a client.
func sendDelta(p piece, send func(event string, data any) error) error {
	if p.Text == "" && !p.Reset {
		return nil
	}
	return send("delta", delta{p.messageID, p.Text, p.Reset})
}

// sink gets an answer as it comes.
type sink interface {
	delta(p piece) error
	message(m Message) error
	ping() error
	// end gets the whole answer, or why there is none.
	end(a *Answer, p *problem)
}

// await follows a conversation until the run that takes the message has ended, or the time of the gateway has passed.
func (s *Server) await(q *request, to sink, threadID string, after int64, messageID string) error {
	a := &Answer{Messages: []Message{}, MessageID: messageID, Session: sessionOf(q.answer.Header())}
	ctx, cancel := context.WithTimeout(q.Context(), q.gateway.AnswerTimeout)
	defer cancel()
	f := &follower{server: s, threadID: threadID, after: after, answer: a}
	err := f.follow(ctx, to)
	switch {
	case q.Context().Err() != nil:
		return nil // the client has gone
	case errors.Is(err, errClient):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		a.Status = statusRunning
		to.end(a, nil)
	case membudget.Refused(err):
		logr.FromContextOrDiscard(ctx).Info("An answer of the gateway found no memory", "cause", err.Error())
		to.end(nil, errNoRoom)
	case err != nil:
		to.end(nil, q.problemOf(err))
	default:
		a.Status = statusSucceeded
		to.end(a, nil)
	}
	return nil
}

// errClient says that the client does not take what is sent.
var errClient = errors.New("the client has gone or reads too slowly")

// follower reads the log of a conversation for the answer to one message.
type follower struct {
	server   *Server
	threadID string
	after    int64
	answer   *Answer
	fetch    int // how many events the next read of the store may fetch
	// shared has the newest events, read once for all who wait for an answer in the conversation.
	shared *observe.Followed
	taken  bool
	ended  bool
}

// follow returns when the run has ended.
func (f *follower) follow(ctx context.Context, to sink) error {
	f.shared = f.server.tails.Follow(ctx, f.threadID, f.after)
	defer f.shared.Close()
	ping := time.NewTicker(f.server.pingTime)
	defer ping.Stop()
	for {
		if err := f.read(ctx, to); err != nil || f.ended {
			return err
		}
		select {
		case <-f.shared.Ready():
		case <-ping.C:
			if to.ping() != nil {
				return errClient
			}
			if err := f.checkDeleted(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-f.server.stopping:
			return errStopping
		}
	}
}

// checkDeleted returns an error when the Thread is being deleted. The log says that only once its subagents are gone, which may take long.
func (f *follower) checkDeleted(ctx context.Context) error {
	t, err := f.server.opts.Threads.Store().Thread(ctx, f.threadID)
	if errors.Is(err, store.ErrNotFound) || err == nil && t.Deleting {
		return errGoneWaiting
	}
	return err
}

// read handles the events that are there.
func (f *follower) read(ctx context.Context, to sink) error {
	for {
		if more, err := f.readPage(ctx, to); err != nil || !more {
			return err
		}
	}
}

// readPage handles the next page of events, whose memory is drawn for as long. It reports whether there may be more.
func (f *follower) readPage(ctx context.Context, to sink) (more bool, err error) {
	part, done := membudget.Part(ctx)
	defer done()
	events, err := f.page(part)
	if errors.Is(err, store.ErrNotFound) {
		return false, errGoneWaiting
	}
	if err != nil || len(events) == 0 {
		return false, err
	}
	for i := range events {
		f.after = events[i].Seq
		if err := f.event(ctx, &events[i], to); err != nil || f.ended {
			return false, err
		}
	}
	return true, nil
}

// page returns the events that come next: those that are shared, or of the store when this answer is further behind.
func (f *follower) page(ctx context.Context) ([]store.Event, error) {
	events, held, err := f.shared.After(f.after)
	if held || err != nil {
		if err == nil {
			err = membudget.From(ctx).Draw(ctx, 2*sizeOf(events)) // they may no longer be held by the time they are sent
		}
		return events, err
	}
	adjust, err := membudget.Reserve(ctx, pageBytes)
	if err != nil {
		return nil, err
	}
	events, err = f.server.opts.Threads.Store().Events(ctx, f.threadID, f.after, cmp.Or(f.fetch, firstPage))
	if err != nil || len(events) == 0 {
		return nil, err
	}
	size := sizeOf(events)
	adjust(2 * size) // once as events, once as they are sent
	f.fetch = min(max(int(pageBytes/(size/int64(len(events)))), 1), eventPage)
	return events, nil
}

func sizeOf(events []store.Event) (bytes int64) {
	for i := range events {
		bytes += events[i].Bytes()
	}
	return bytes
}

func (f *follower) event(ctx context.Context, e *store.Event, to sink) error {
	switch {
	case e.Type == store.EventTerminated:
		return errEndedWaiting
	case e.Type == store.EventDestroyed, e.Type == store.EventRetained:
		return errGoneWaiting
	case e.Type == store.EventMessageCreated && e.MessageID == f.answer.MessageID:
		f.taken, f.answer.Run = true, e.RunID
	case !f.taken || f.answer.Run != "" && e.RunID != f.answer.Run: // of another run, or of another writer
	case e.Type == store.EventDelta:
		d := piece{messageID: e.MessageID}
		if json.Unmarshal(e.Data, &d) == nil && (d.Text != "" || d.Reset) && to.delta(d) != nil {
			return errClient
		}
	case e.Type == store.EventMessageCreated:
		var stored store.Message
		if json.Unmarshal(e.Data, &stored) != nil || stored.Role != store.RoleAssistant {
			return nil
		}
		if m, ok := visibleMessage(&stored); ok {
			// It is kept until the answer is whole, and is in that once more.
			if err := membudget.From(ctx).Draw(ctx, 2*int64(len(m.Content))); err != nil {
				return err
			}
			f.answer.Messages = append(f.answer.Messages, m)
			if to.message(m) != nil {
				return errClient
			}
		}
	case e.Type == store.EventRunEnded:
		var o struct {
			Status string
			Usage  store.RunUsage
		}
		_ = json.Unmarshal(e.Data, &o)
		if o.Status != runtimev1.RunSucceeded {
			return errFailedRun
		}
		f.ended, f.answer.usage = true, o.Usage
	}
	return nil
}

// sinkOf returns how a client wants its answer: as events when it asks for them.
func (s *Server) sinkOf(q *request) sink {
	if !strings.Contains(q.Header.Get("Accept"), "text/event-stream") {
		return &wholeSink{server: s, request: q}
	}
	return s.eventsOf(q)
}

// eventsOf begins an answer that is server-sent events.
func (s *Server) eventsOf(q *request) *eventSink {
	h := q.answer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer events
	q.answer.WriteHeader(http.StatusOK)
	return &eventSink{server: s, request: q, control: http.NewResponseController(q.answer)}
}

// wholeSink sends an answer when it is whole.
type wholeSink struct {
	server  *Server
	request *request
}

func (*wholeSink) delta(piece) error     { return nil }
func (*wholeSink) message(Message) error { return nil }
func (*wholeSink) ping() error           { return nil }

func (w *wholeSink) end(a *Answer, p *problem) {
	if p != nil {
		refuse(w.request.answer, p)
		return
	}
	code := http.StatusOK
	if a.Status == statusRunning {
		code = http.StatusAccepted
	}
	_ = w.server.write(w.request, code, whole(a))
}

// whole returns an answer as JSON.
func whole(a *Answer) []byte {
	a.Content = a.text()
	body, _ := json.Marshal(a) // has texts and numbers only
	return body
}

// eventSink sends an answer as server-sent events: delta, message, and at the end done or error.
type eventSink struct {
	server  *Server
	request *request
	control *http.ResponseController
}

func (e *eventSink) delta(p piece) error { return sendDelta(p, e.send) }

func (e *eventSink) message(m Message) error { return e.send("message", m) }

func (e *eventSink) ping() error { return e.write([]byte(": ping\n\n")) }

func (e *eventSink) end(a *Answer, p *problem) {
	if p != nil {
		_ = e.frame("error", []byte(strings.TrimSpace(string(bodyOf(p, sessionOf(e.request.answer.Header()))))))
		return
	}
	_ = e.frame("done", whole(a))
}

func (e *eventSink) send(event string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return e.frame(event, body)
}

// frame writes one event. JSON has no line breaks of its own.
func (e *eventSink) frame(event string, body []byte) error {
	return e.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, e.server.opts.Secrets.JSON(e.request.gateway.Namespace, body)))
}

// write sends a piece of the answer. A client that does not take it in time loses its connection.
func (e *eventSink) write(b []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := e.request.answer.Write(b); err != nil {
		return err
	}
	if err := e.control.Flush(); err != nil {
		return err
	}
	return e.control.SetWriteDeadline(time.Time{})
}
