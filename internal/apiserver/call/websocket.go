package call

import (
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// IsWebSocket reports whether the client opens a WebSocket.
func (c *Call) IsWebSocket() bool {
	return strings.EqualFold(c.Request.Header.Get("Upgrade"), "websocket")
}

// AcceptWebSocket opens the WebSocket, or answers with the reason why it does not. It refuses other origins, because
// browsers send client certificates by themselves.
func (c *Call) AcceptWebSocket(subprotocol string) (*websocket.Conn, error) {
	return websocket.Accept(c.Response, c.Request, &websocket.AcceptOptions{Subprotocols: subprotocols(c.Request, subprotocol)})
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
