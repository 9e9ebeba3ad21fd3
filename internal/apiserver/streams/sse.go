package streams

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
)

// reconnectAfter is how long a browser waits before it reconnects, in milliseconds.
const reconnectAfter = 1000

// serveSSE sends what f follows as server-sent events, until the client or the server ends the stream.
func (h *Handler) serveSSE(c *call.Call, f *follower) error {
	out := h.startSSE(c)
	if out.sendRetry() == nil {
		f.run(c.Context(), out)
	}
	return nil
}

// startSSE begins an answer of server-sent events.
func (h *Handler) startSSE(c *call.Call) *sseSink {
	header := c.Response.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies must not buffer events
	c.Response.WriteHeader(http.StatusOK)
	return &sseSink{w: c.Response, control: http.NewResponseController(c.Response), timeout: h.TransferTimeout, clean: c.Clean}
}

// sendRetry sends the browser its reconnection time, and with it the head of the answer.
func (s *sseSink) sendRetry() error {
	return s.write(fmt.Appendf(nil, "retry: %d\n\n", reconnectAfter))
}

// sseSink writes server-sent events (WHATWG HTML, 9.2).
type sseSink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	clean   func([]byte) []byte // removes secrets
	buf     bytes.Buffer
}

func (s *sseSink) send(_ context.Context, events []store.Event) error {
	s.buf.Reset()
	for i := range events {
		if err := s.append(fmt.Sprint(events[i].Seq), events[i].Type, eventOf(&events[i])); err != nil {
			return err
		}
	}
	return s.write(s.buf.Bytes())
}

func (s *sseSink) append(id, event string, data any) error {
	body, err := call.Marshal(data) // one line, because encoding/json escapes line breaks
	if err != nil {
		return err
	}
	s.appendJSON(id, event, s.clean(body))
	return nil
}

// appendJSON appends an event with JSON that holds no secrets and no line breaks but one at its end.
func (s *sseSink) appendJSON(id, event string, body []byte) {
	if id != "" {
		fmt.Fprintf(&s.buf, "id: %s\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", oneLine.Replace(event), bytes.TrimSuffix(body, []byte("\n")))
}

// oneLine keeps a name from ending its line and starting another field.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ", "\x00", " ")

func (s *sseSink) ping(context.Context) error { return s.write([]byte(": ping\n\n")) }

func (s *sseSink) close(_ context.Context, why runtimev1.StreamClosed) {
	s.buf.Reset()
	if s.append("", runtimev1.StreamClosedEvent, why) == nil {
		_ = s.write(s.buf.Bytes())
	}
}

// write sends data and waits until the connection has accepted it. It clears the deadline again, because a deadline
// would end an idle HTTP/2 stream.
func (s *sseSink) write(b []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.control.SetWriteDeadline(time.Time{})
}
