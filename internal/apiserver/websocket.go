package apiserver

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

func (s *Server) serveWebSocket(c *call, f *follower) error {
	// A browser cannot set Authorization; it sends its token as a subprotocol, as Kubernetes has it, and must
	// then be offered another one to agree on. Another origin is refused: client certificates come by themselves.
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{Subprotocols: []string{runtimev1.EventsSubprotocol}})
	if err != nil {
		return nil // it has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(c.r.Context()) // nothing is expected from the client; ends when it leaves
	f.run(ctx, &wsSink{conn: conn, timeout: s.opts.transferTimeout, clean: c.clean})
	return nil
}

// wsSink sends each event as a text message.
type wsSink struct {
	conn    *websocket.Conn
	timeout time.Duration
	clean   func([]byte) []byte // of secrets
}

func (s *wsSink) send(ctx context.Context, events []store.Event) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errSlow)
	defer cancel()
	for i := range events {
		body, err := marshal(eventOf(&events[i]))
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

// close puts the reason and where to go on into the close frame, which takes 123 bytes.
func (s *wsSink) close(_ context.Context, why runtimev1.StreamClosed) {
	code := map[string]websocket.StatusCode{
		runtimev1.ClosedEndOfLog:       websocket.StatusNormalClosure,
		runtimev1.ClosedThreadDeleted:  websocket.StatusNormalClosure,
		runtimev1.ClosedServerStopping: websocket.StatusGoingAway,
	}[why.Reason]
	if code == 0 {
		code = websocket.StatusTryAgainLater
	}
	_ = s.conn.Close(code, fmt.Sprintf("%s: connect again with after=%d", why.Reason, why.Resume))
}
