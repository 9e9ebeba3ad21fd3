package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	kjson "sigs.k8s.io/json"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/membudget"
)

// socketPath is where WebSockets are opened.
const socketPath = "v1/socket"

// socketProtocol is the subprotocol that a WebSocket speaks, where the client names one.
const socketProtocol = "v1.gateway.skein.dev"

// Bounds of WebSockets.
const (
	socketIdle   = 10 * time.Minute // without a message
	maxRefusals  = 20               // messages in a row that are refused
	socketFrames = 1 << 10          // bytes of a message besides its content
)

var (
	errNoSocket   = &problem{status: http.StatusUpgradeRequired, reason: "UpgradeRequired", message: "open a WebSocket here; POST v1/message takes a message without one"}
	errSockets    = &problem{status: http.StatusTooManyRequests, reason: "TooMany", code: "rate_limit_exceeded", message: "as many WebSockets are open here as may be: try again later, or POST v1/message", retry: 5}
	errOneAtATime = &problem{status: http.StatusConflict, reason: "Busy", message: "the agent is still at work, and a message waits already: wait until an answer is done", retry: 1}
	errNoFrame    = badRequest(`send a JSON object with content, and key if you like, such as {"content": "hello", "key": "1"}`)
)

// said is what a client sends over a WebSocket.
type said struct {
	Content string `json:"content"`
	// Key is what the header Idempotency-Key is to POST v1/message.
	Key string `json:"key,omitempty"`
}

// outgoing is what a client gets.
type outgoing struct {
	Event string          `json:"event"` // open, delta, message, done or error
	Data  json.RawMessage `json:"data"`
}

// socket answers GET v1/socket: a WebSocket over which a client has its conversation. Each message counts, is recorded and is
// answered like one of POST v1/message.
func (s *Server) socket(q *request) error {
	if !strings.EqualFold(q.Header.Get("Upgrade"), "websocket") {
		q.answer.Header().Set("Upgrade", "websocket")
		return errNoSocket
	}
	if !s.sameSite(q) {
		keepProvedID(q)
		return errOrigin
	}
	select {
	case q.limiter.sockets <- struct{}{}:
		defer func() { <-q.limiter.sockets }()
	default:
		return errSockets
	}
	// Whose page it is has been seen, and compression would let each client hold memory.
	conn, err := websocket.Accept(q.answer, q.Request, &websocket.AcceptOptions{Subprotocols: []string{socketProtocol}, InsecureSkipVerify: true})
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(int64(q.gateway.Limits.MessageBytes) + socketFrames)
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	c := &conversation{server: s, opened: q, conn: conn, waiting: make(chan frame, 1)}
	read := make(chan error, 1)
	go func() {
		defer close(read)
		defer cancel() // ends what is under way for this client
		read <- c.read(ctx)
	}()
	code, reason := c.serve(ctx, read)
	_ = conn.Close(code, reason)
	cancel()
	_ = conn.CloseNow()
	for range read { // until nothing more is read
	}
	c.drop()
	return nil
}

// sameSite reports whether a WebSocket may be opened from the page that a browser names. Browsers do not ask the server before they open
// one.
func (s *Server) sameSite(q *request) bool {
	origin := q.Header.Get("Origin")
	if origin == "" || slices.Contains(q.gateway.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, q.Host)
}

// conversation is an open WebSocket.
type conversation struct {
	server  *Server
	opened  *request // by which it was opened
	conn    *websocket.Conn
	waiting chan frame // the message that is answered next
	// refusals counts the messages that were refused since the last answer. Those that read and those that answer messages both refuse some.
	refusals atomic.Int32
}

// frame is a message of a client, and what it takes of the bodies that may be in memory.
type frame struct {
	body []byte
	held *metered
}

// serve answers the messages of a client until it goes, or must go. It returns how to close.
func (c *conversation) serve(ctx context.Context, read <-chan error) (websocket.StatusCode, string) {
	hello, _ := json.Marshal(map[string]string{"threadId": c.opened.answer.Header().Get(ids.Header), "session": sessionOf(c.opened.answer.Header())})
	if c.write(ctx, "open", hello) != nil {
		return closeUnanswered(read)
	}
	idle, ping := time.NewTimer(socketIdle), time.NewTicker(c.server.pingTime)
	defer idle.Stop()
	defer ping.Stop()
	for {
		select {
		case f := <-c.waiting:
			p := c.answer(ctx, f)
			switch {
			case p == nil:
				c.refusals.Store(0)
			case p.status == http.StatusNotFound, p == errStopping:
				return websocket.StatusGoingAway, p.reason
			case p.status == http.StatusUnauthorized, p == errOrigin:
				return websocket.StatusPolicyViolation, p.reason + ": what the WebSocket was opened with is not taken any more"
			case p.status < http.StatusInternalServerError && c.refusals.Add(1) >= maxRefusals: // else it is not the client's fault
				return websocket.StatusPolicyViolation, p.reason + ": too many messages were refused, heed what their errors say"
			}
			idle.Reset(socketIdle)
		case <-ping.C:
			if c.ping(ctx) != nil {
				return closeUnanswered(read)
			}
		case <-idle.C:
			return websocket.StatusNormalClosure, "Idle: open another WebSocket when there is something to say"
		case err := <-read:
			return closeCodeOf(err)
		case <-c.server.stopping:
			return websocket.StatusGoingAway, "Unavailable: the server is stopping, open another WebSocket"
		}
	}
}

// read takes the messages of the client. One can wait while another is answered; more are refused at once, so that a client that
// floods holds two, and that its leaving is noticed.
func (c *conversation) read(ctx context.Context) error {
	for {
		f, err := c.next(ctx)
		if err != nil {
			return err
		}
		select {
		case c.waiting <- f:
			continue
		default:
		}
		f.held.release()
		if c.refusals.Add(1) >= maxRefusals {
			return errOneAtATime
		}
		if c.refuse(ctx, errOneAtATime, sessionOf(c.opened.answer.Header())) != nil {
			return errClient
		}
	}
}

// next reads a message. Once it has begun it has as much time to arrive as a request.
func (c *conversation) next(ctx context.Context) (f frame, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kind, r, err := c.conn.Reader(ctx)
	if err != nil {
		return f, err
	}
	if kind != websocket.MessageText {
		return f, errNoFrame
	}
	defer time.AfterFunc(c.server.requestTime, cancel).Stop()
	part, _ := membudget.Part(ctx) // release closes it
	f.held = &metered{Reader: r, own: c.opened.limiter.bodies, memory: membudget.From(part)}
	if f.body, err = membudget.ReadAll(part, f.held.memory, f.held); err == nil {
		err = f.held.memory.Draw(part, membudget.JSONCost(f.body))
	}
	if err != nil {
		f.held.release()
	}
	return f, err
}

// drop discards a message that will get no answer any more.
func (c *conversation) drop() {
	select {
	case f := <-c.waiting:
		f.held.release()
	default:
	}
}

// closeUnanswered returns how to close when a client gets nothing more. When reading has ended, it says why: it ends ctx, which fails what
// is sent.
func closeUnanswered(read <-chan error) (websocket.StatusCode, string) {
	select {
	case err := <-read:
		return closeCodeOf(err)
	default:
		return websocket.StatusGoingAway, ""
	}
}

// closeCodeOf returns how to close after an error of reading.
func closeCodeOf(err error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(err, errNoFrame):
		return websocket.StatusUnsupportedData, "BadRequest: send text, not bytes"
	case errors.Is(err, errBodies), membudget.Refused(err):
		return websocket.StatusTryAgainLater, "Unavailable: too many large messages arrive at once, open another WebSocket in a moment"
	case errors.Is(err, errOneAtATime):
		return websocket.StatusPolicyViolation, "Busy: wait until an answer is done"
	}
	return websocket.StatusNormalClosure, "" // it has gone, or sent what a WebSocket may not carry
}

// answer answers one message. It returns why there is no answer, or nil. The client has been told.
func (c *conversation) answer(ctx context.Context, f frame) *problem {
	s, session := c.server, ids.NewSession() // IDS-05
	part, over := membudget.Part(ctx)        // of one message, as a request has one
	defer over()
	r := c.opened.Clone(part)
	r.Method = http.MethodPost // it is what a POST is otherwise
	w := &unwritten{header: http.Header{}}
	w.header.Set(ids.SessionHeader, session)
	a, record := s.audit(w, r, session)
	defer record()
	a.setCaller("gateway", c.opened.gateway.Namespace, c.opened.gateway.Name, socketPath)
	r = r.WithContext(a.withLogValues(r.Context()))
	q := &request{Request: r, answer: a, gateway: c.opened.gateway, limiter: c.opened.limiter, id: c.opened.id, user: c.opened.user, fresh: c.opened.fresh}
	q.body = f.held
	defer q.body.release()
	err := c.say(q, f.body)
	if err == nil {
		return nil
	}
	p := q.problemOf(err)
	a.WriteHeader(p.status)
	_ = c.refuse(ctx, p, session) // reading notices that the client has gone
	return p
}

// say queues one message of the client and sends the answer to it. It checks the gateway, the limits and the right of the client again,
// because they may have changed since the WebSocket was opened.
func (c *conversation) say(q *request, body []byte) error {
	s := c.server
	// The gateway may have changed, or gone, since the WebSocket was opened.
	g, err := s.opts.Gateways.Find(q.Context(), q.gateway.Namespace, q.gateway.Name)
	var notReady *definition.NotReadyError
	switch {
	case errors.As(err, &notReady):
		return errNoGateway
	case err != nil:
		return err
	}
	q.gateway, q.limiter = g, s.limits.limiterOf(g)
	refused := s.checkStillAllowed(q, c.opened)
	if whose := q.limiter.request(q.id, s.address(q.Request)); whose != "" {
		return tooMany(whose)
	}
	q.nameThread()
	if refused != nil {
		return refused
	}
	done, err := s.enter(callerName("gateway", g.Namespace, g.Name), g.Namespace, true)
	defer done()
	if err != nil {
		return err
	}
	var in said
	strict, err := kjson.UnmarshalStrict(body, &in)
	switch {
	case err != nil || len(strict) > 0:
		return errNoFrame
	case strings.TrimSpace(in.Content) == "":
		return badRequest("content is empty: say something")
	case len(in.Content) > int(g.Limits.MessageBytes):
		return errTooMuch
	case len(in.Key) > maxKey:
		return badRequest("a key has 200 characters at most")
	}
	q.Request = beginTrace(q.answer, q.Request, "gateway", socketPath)
	failed := &socketSink{conversation: c, request: q}
	if err := s.say(q, &saying{content: in.Content, key: in.Key}, func() sink { return failed }); err != nil {
		return err
	}
	c.opened.fresh = false
	if failed.problem != nil {
		return failed.problem
	}
	return nil
}

// write sends something to the client, in the time that one piece of an answer has.
func (c *conversation) write(ctx context.Context, event string, data []byte) error {
	body, err := json.Marshal(outgoing{Event: event, Data: data})
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// A write whose context ends closes the connection at once. The context ends when the client sends what is refused, perhaps just
	// after the last byte was written, and the client could then not read why.
	return c.timely(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return c.conn.Write(ctx, websocket.MessageText, c.server.opts.Secrets.JSON(c.opened.gateway.Namespace, body))
	})
}

// ping waits until the client has answered a ping, or ctx ends. As for write, the end of ctx must not close the connection. The ping is
// over with the connection.
func (c *conversation) ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	pong := make(chan error, 1)
	go func() { pong <- c.timely(context.WithoutCancel(ctx), c.conn.Ping) }()
	select {
	case err := <-pong:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conversation) timely(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return f(ctx)
}

func (c *conversation) refuse(ctx context.Context, p *problem, session string) error {
	return c.write(ctx, "error", bodyOf(p, session))
}
