// Package client drives a supervisor: it implements sandbox.Sandbox over one mTLS HTTP/2 connection, a stream
// for each isolate. All that comes back is hostile and bounded here once more, whatever the supervisor and the
// child were meant to bound.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// The supervisor's end of the contract; it is a package that only Linux builds.
const (
	threadHeader = "Skein-Thread"
	nestedHeader = "Skein-Nested"
	streamPath   = "/v1/isolate"
)

// Options say which supervisor to dial, and for whom.
type Options struct {
	Address    string   // host:port
	ServerName string   // that the supervisor's certificate must carry; see pki.ServerName
	CA         []byte   // PEM, vouches for the supervisor
	Client     pki.Pair // the manager's own certificate
	// Credentials are asked for CA and Client at each connection instead: they may change while the sandbox lives.
	Credentials func(ctx context.Context) (ca []byte, client pki.Pair, err error)
	// Configs keep what was read of the credentials for the next connections, of all clients that share them. May be nil.
	Configs  *pki.ClientConfigs
	ThreadID string // the one thread that this sandbox is for
	// Lines may have a connection already, under the name Line. May be nil.
	Lines *Lines
	Line  string

	// DialTimeout bounds how long the address may take to accept the first connection; 5 s when 0, and for those that
	// come after it: a sandbox that was there once is not given up for a packet. The handshake has its own.
	DialTimeout time.Duration
	// Dial makes the connection, while its context lasts; net.Dialer when nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxWallTime is the pool's cap, against a supervisor that does not keep it. 0: none.
	MaxWallTime time.Duration
	// Answered is called once, when the sandbox has given its first result. May be nil.
	Answered func()
}

const (
	// lateGrace is how long an execution may take to say that it was terminated before it is given up: the supervisor
	// kills after a quarter of a second, the rest is for the network.
	lateGrace = 2 * time.Second
	// wallGrace is how long past its wall time an execution may be heard of. It is for a supervisor that does not keep the
	// limit: a busy node, where all comes seconds late, must not make a limit of what ended by itself, or of one call's
	// limit the end of its isolate.
	wallGrace = 10 * time.Second
)

// Client is a connection to one supervisor.
type Client struct {
	opts      Options
	transport *http.Transport
	early     atomic.Pointer[http.ClientConn] // made by Connect
	with      atomic.Pointer[credentials]     // of the last handshake
	answered  func()                          // tells of the first result; later calls do nothing
	url       string
	ctx       context.Context
	cancel    context.CancelCauseFunc

	mu      sync.Mutex // of closed and of entering streams
	closed  bool
	streams sync.WaitGroup
}

var _ sandbox.Sandbox = (*Client)(nil)

// errClosed is the cause when Close ended something.
var errClosed = errors.New("the connection to the sandbox was closed")

// Dial prepares a connection; Connect or the first stream makes it. An error says what is wrong with the options.
func Dial(o Options) (*Client, error) {
	switch {
	case o.Address == "":
		return nil, errors.New("a sandbox client needs an address")
	case o.ThreadID == "" || len(o.ThreadID) > 256 || strings.ContainsAny(o.ThreadID, "\r\n"):
		return nil, errors.New("a sandbox client needs the id of its thread")
	}
	if o.Credentials == nil {
		o.Credentials = func(context.Context) ([]byte, pki.Pair, error) { return o.CA, o.Client, nil }
		if _, err := pki.ClientConfig(o.CA, o.Client, o.ServerName); err != nil {
			return nil, fmt.Errorf("the certificates of the sandbox client: %w", err)
		}
	}
	return newClient(o), nil
}

func newClient(o Options) *Client {
	if o.Configs == nil {
		o.Configs = &pki.ClientConfigs{}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	c := &Client{opts: o, url: "https://" + o.Address + streamPath}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.transport = c.newTransport()
	c.answered = func() {}
	if o.Answered != nil {
		c.answered = sync.OnceFunc(o.Answered)
	}
	return c
}

func (c *Client) newTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialTLSContext:     c.dialTLS,
		Protocols:          protocols,
		DisableCompression: true,
		MaxIdleConns:       1,
		// A pod that is gone without a word is noticed within these.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 30 * time.Second},
	}
}

// enter counts a stream in, unless the connection is closed. streams.Done counts it out.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.streams.Add(1)
	return true
}

// Close implements sandbox.Sandbox.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(errClosed)
	c.streams.Wait()
	if conn := c.early.Load(); conn != nil {
		_ = conn.Close() // nothing is under way in it
	}
	c.transport.CloseIdleConnections()
	return nil
}

// stream is one isolate's conversation.
type stream struct {
	*protocol.Conn
	body   io.Closer
	pipe   *io.PipeWriter
	cancel context.CancelCauseFunc
	ctx    context.Context
}

// refusedError is an answer of the supervisor other than 200: nothing of the code ran.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return e.text }

// Is tells a sandbox that has no room from one that is of no use.
func (e *refusedError) Is(target error) bool {
	return target == sandbox.ErrBusy && e.status == http.StatusTooManyRequests
}

// open starts a stream with an encoded Open; nested is of a run that another run waits for. The stream ends with ctx, with Close, and by its own close.
func (c *Client) open(ctx context.Context, open []byte, nested bool) (*stream, error) {
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, in)
	if err != nil {
		stop()
		cancel(err)
		return nil, err
	}
	req.Header.Set(threadHeader, c.opts.ThreadID)
	if nested {
		req.Header.Set(nestedHeader, "true")
	}
	// The transport heeds the context only between two pieces of the request's body, and waits for those here.
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	s := &stream{pipe: out, ctx: ctx, cancel: func(cause error) { stop(); cancel(cause) }}
	sent := protocol.NewConn(nil, out, nil)
	go func() {
		if err := sent.Write(protocol.TypeOpen, open); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			_ = out.CloseWithError(err)
		}
	}()
	resp, err := c.roundTrip(req)
	if err != nil {
		err = c.refusal(ctx, err)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxReason))
		_ = resp.Body.Close()
		err = &refusedError{resp.StatusCode, strings.TrimSpace(protocol.ParseText(text))}
	}
	if err != nil {
		_ = out.CloseWithError(err)
		var refused *refusedError // an answer that was had stands, whatever has ended the stream since
		if cause := context.Cause(ctx); cause != nil && !errors.As(err, &refused) {
			err = cause
		}
		s.cancel(err)
		return nil, err
	}
	s.body = resp.Body
	// A piece that the sandbox has no room for is waited for regardless of the context: closing the answer ends that.
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	s.Conn = protocol.NewConn(resp.Body, out, nil)
	return s, nil
}

// close ends the stream; the supervisor kills the child then.
func (s *stream) close(cause error) {
	s.cancel(cause)
	_ = s.pipe.CloseWithError(cause)
	_ = s.body.Close()
}
