package gateway

import (
	"net/http"

	"github.com/skein-dev/skein/internal/gateway/ids"
)

var errWithdrawn = &problem{status: http.StatusUnauthorized, reason: "Unauthorized", message: "the gateway tells conversations apart in another way since the WebSocket was opened: open another one"}

// checkStillAllowed returns why a message over a WebSocket must be refused although it could be opened: the gateway no longer accepts its
// key, its id or its page. opened is the request by which it was opened, and q has the gateway as it is now.
func (s *Server) checkStillAllowed(q, opened *request) error {
	if err := s.authorize(q); err != nil {
		return err
	}
	if !s.sameSite(q) {
		return errOrigin
	}
	now, then := q.gateway, opened.gateway
	if now.UserHeader != then.UserHeader || (now.Provider == nil) != (then.Provider == nil) || q.user != "" && ids.OfUser(now.UserKey, q.user) != q.id {
		return errWithdrawn
	}
	if _, err := now.IDs.Keys.Verify(opened.answer.Header().Get(ids.Header)); err != nil {
		return unsigned(err)
	}
	return nil
}
