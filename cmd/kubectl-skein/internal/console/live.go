package console

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxSockets bounds the live lists that are open at once.
	maxSockets = 100
	// liveInterval is the least time between messages with changes.
	liveInterval = 250 * time.Millisecond
	// liveHeartbeat is how often a connection is tried on which nothing was sent.
	liveHeartbeat = 30 * time.Second
)

// serveLive answers GET /api/live: a WebSocket with the Threads and ScheduledEffects of a namespace, or of all when it is "", and then
// what changes in them.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	if !isUpgrade(r) {
		refuse(w, http.StatusUpgradeRequired, metav1.StatusReasonBadRequest, "/api/live is a WebSocket: connect to it as one")
		return
	}
	namespace, ok := namespaceOf(w, r)
	if !ok {
		return
	}
	select {
	case s.sockets <- struct{}{}:
		defer func() { <-s.sockets }()
	default:
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many pages of this console are open: close some of them")
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	// The page sends nothing, and the context ends when it goes. It outlives that of the request, so that the page can be told why it ends.
	ctx, end := context.WithCancel(conn.CloseRead(context.WithoutCancel(r.Context())))
	defer end()
	defer context.AfterFunc(r.Context(), end)()
	shown, leave := s.lists.show(namespace)
	defer leave()
	wake := make(chan struct{}, 1)
	views := []*view{shown.threads.view(wake), shown.effects.view(wake)}
	for _, v := range views {
		defer v.leave()
	}
	if s.send(ctx, conn, views, wake) != nil && r.Context().Err() != nil {
		_ = conn.Close(websocket.StatusGoingAway, "the console is stopping")
	}
}

// send sends what changes until the connection ends or the page reads too slowly.
func (s *Server) send(ctx context.Context, conn *websocket.Conn, views []*view, wake <-chan struct{}) error {
	heartbeat := time.NewTicker(liveHeartbeat)
	defer heartbeat.Stop()
	for {
		begun, changes := time.Now(), false
		for _, v := range views {
			settled, err := s.sendView(ctx, conn, v)
			if err != nil {
				return err
			}
			changes = changes || settled
		}
		if changes { // others may wait already, and more may come meanwhile
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(begun.Add(liveInterval))):
				continue
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-heartbeat.C:
			if err := s.within(ctx, conn.Ping); err != nil {
				return err
			}
		}
	}
}

// sendView sends what waits in a view. The first list comes at once, in pieces. Later changes come in one message, after which it
// returns true.
func (s *Server) sendView(ctx context.Context, conn *websocket.Conn, v *view) (changes bool, err error) {
	for {
		m, settled := v.next()
		if m == nil {
			return false, nil
		}
		body, err := json.Marshal(m)
		if err != nil {
			return false, err
		}
		if err := s.within(ctx, func(ctx context.Context) error { return conn.Write(ctx, websocket.MessageText, body) }); err != nil {
			return false, err
		}
		if settled && (len(m.Items) > 0 || len(m.Deleted) > 0) {
			return true, nil
		}
	}
}

// within calls a function that waits for the page, for as long as a page may take.
func (s *Server) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.WriteTimeout)
	defer cancel()
	return f(ctx)
}
