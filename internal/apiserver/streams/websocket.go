package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
)

func (h *Handler) serveWebSocket(c *call.Call, f *follower) error {
	conn, err := c.AcceptWebSocket(runtimev1.EventsSubprotocol)
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(c.Context()) // the client sends nothing; ctx ends when it disconnects
	f.run(ctx, &wsSink{conn: conn, timeout: h.TransferTimeout, clean: c.Clean})
	return nil
}

// wsSink sends each event as a text message.
type wsSink struct {
	conn    *websocket.Conn
	timeout time.Duration
	clean   func([]byte) []byte // removes secrets
	again   string              // what to do after the end, when it is not to resume after an event
}

func (s *wsSink) send(ctx context.Context, events []store.Event) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	for i := range events {
		body, err := call.Marshal(eventOf(&events[i]))
		if err != nil {
			return err
		}
		if err := s.conn.Write(ctx, websocket.MessageText, s.clean(body)); err != nil {
			return err
		}
	}
	return nil
}

func (s *wsSink) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	return s.conn.Ping(ctx)
}

// close puts the reason and the position to resume at into the close frame, which holds 123 bytes.
func (s *wsSink) close(_ context.Context, why runtimev1.StreamClosed) {
	code := map[string]websocket.StatusCode{
		runtimev1.ClosedEndOfLog:       websocket.StatusNormalClosure,
		runtimev1.ClosedThreadDeleted:  websocket.StatusNormalClosure,
		runtimev1.ClosedServerStopping: websocket.StatusGoingAway,
	}[why.Reason]
	if code == 0 {
		code = websocket.StatusTryAgainLater
	}
	again := s.again
	if again == "" {
		again = fmt.Sprintf("connect again with after=%d", why.Resume)
	}
	_ = s.conn.Close(code, why.Reason+": "+again)
}
