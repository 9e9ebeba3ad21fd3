package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

func (s *Server) serveWebSocket(c *call, f *follower) error {
	// Another origin is refused: client certificates come by themselves.
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{Subprotocols: subprotocols(c.r, runtimev1.EventsSubprotocol)})
	if err != nil {
		return nil // it has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(c.r.Context()) // nothing is expected from the client; ends when it leaves
	f.run(ctx, &wsSink{conn: conn, timeout: s.opts.transferTimeout, clean: c.clean})
	return nil
}

// bearerSubprotocol begins the subprotocol in which a browser, which cannot set Authorization, sends its token.
const bearerSubprotocol = "base64url.bearer.authorization.k8s.io."

// subprotocols returns those that an answer may name, the best first: our own, then whatever else the client offers beside
// its token. A browser takes an answer for a failure that names none of what it offered, and the Kubernetes API server
// names any, so that clients which are written for its watches work here too. The token itself is never named: the
// authenticator takes it out of the header only where it is what the caller is known by.
func subprotocols(r *http.Request, own string) []string {
	names := []string{own}
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, bearerSubprotocol) {
				names = append(names, name)
			}
		}
	}
	return names
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
