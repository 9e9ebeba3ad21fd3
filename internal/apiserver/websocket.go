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
	// Accept refuses other origins, because browsers send client certificates by themselves.
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{Subprotocols: subprotocols(c.r, runtimev1.EventsSubprotocol)})
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(c.r.Context()) // the client sends nothing; ctx ends when it disconnects
	f.run(ctx, &wsSink{conn: conn, timeout: s.opts.transferTimeout, clean: c.clean})
	return nil
}

// bearerSubprotocol is the prefix of the subprotocol in which a browser, which cannot set Authorization, sends its
// token.
const bearerSubprotocol = "base64url.bearer.authorization.k8s.io."

// subprotocols returns the subprotocols that an answer may name, the best first: our own, then the others that the
// client offers beside its token. A browser treats an answer that names none of its offers as a failure. The
// Kubernetes API server names any of them, so naming one makes clients written for its watches work here too. The
// token itself is never named. The authenticator removes it from the header only when the token identified the
// caller.
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
	clean   func([]byte) []byte // removes secrets
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
	_ = s.conn.Close(code, fmt.Sprintf("%s: connect again with after=%d", why.Reason, why.Resume))
}
