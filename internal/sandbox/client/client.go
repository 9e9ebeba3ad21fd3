// Package client drives a supervisor: it implements sandbox.Sandbox over one mTLS HTTP/2 connection, with a stream
// for each isolate. It treats everything that comes back as hostile and bounds it again, whatever limits the
// supervisor and the child apply.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Copies of the supervisor's constants, because its package builds only on Linux.
const (
	threadHeader = "Skein-Thread"
	nestedHeader = "Skein-Nested"
	streamPath   = "/v1/isolate"
)

// Options say which supervisor to dial, and for which thread.
type Options struct {
	Address    string   // host:port
	ServerName string   // the name in the supervisor's certificate; see pki.ServerName
	CA         []byte   // PEM of the authority that issues the supervisor's certificate
	Client     pki.Pair // the manager's own certificate
	// Credentials returns CA and Client for each connection instead, because they may change during the life of the
	// sandbox.
	Credentials func(ctx context.Context) (ca []byte, client pki.Pair, err error)
	// Configs caches the parsed credentials for later connections of all clients that share it. It may be nil.
	Configs  *pki.ClientConfigs
	ThreadID string // the only thread of this sandbox
	// Connections may have a connection already, under ConnectionName. It may be nil.
	Connections    *Connections
	ConnectionName string

	// DialTimeout bounds how long the address may take to accept the first connection. 0 means 5 s. Later connections
	// always have 5 s, because a sandbox that existed is not given up for a lost packet. The handshake has its own
	// timeout.
	DialTimeout time.Duration
	// Dial opens a connection until its context ends. nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxWallTime is the pool's cap, enforced here too in case the supervisor does not. 0 means none.
	MaxWallTime time.Duration
	// Answered is called once, when the sandbox has returned its first result. It may be nil.
	Answered func()
}

const (
	// lateGrace is how long an execution may take to report that it was terminated. The supervisor kills after a
	// quarter of a second; the rest is for the network.
	lateGrace = 2 * time.Second
	// wallGrace is how long beyond its wall time the client waits for an execution, in case the supervisor does not
	// enforce the limit. It is long because on a busy node everything may come seconds late. Then code that ended by
	// itself must not count as timed out, and the timeout of one call must not end its isolate.
	wallGrace = 10 * time.Second
)

// receiveBuffer is how many bytes of a stream wait in memory for a reader that is held up.
const receiveBuffer = 1 << 20

// Client is a connection to one supervisor.
type Client struct {
	opts      Options
	transport *http.Transport
	early     atomic.Pointer[http.ClientConn] // made by Connect
	with      atomic.Pointer[credentials]     // the credentials of the last handshake
	agreed    atomic.Int32                    // the version of the protocol; 0 while it is not known
	answered  func()                          // reports the first result; later calls do nothing
	url       string
	ctx       context.Context
	cancel    context.CancelCauseFunc

	mu      sync.Mutex // guards closed, and entering streams
	closed  bool
	streams sync.WaitGroup
}

var _ sandbox.Sandbox = (*Client)(nil)

// errClosed is the cause when Close ends something.
var errClosed = errors.New("the connection to the sandbox was closed")

// Dial prepares a connection; Connect or the first stream opens it. An error says what is wrong with the options.
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
		// These detect a pod that disappeared without closing its connections.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 30 * time.Second,
			MaxReceiveBufferPerStream: receiveBuffer,
		},
	}
}

// enter counts a stream in and returns true, unless the connection is closed. streams.Done counts it out.
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
		_ = conn.Close() // nothing runs on it
	}
	c.transport.CloseIdleConnections()
	return nil
}

// stream is the conversation with one isolate.
type stream struct {
	*protocol.Conn
	body   io.Closer
	pipe   *io.PipeWriter
	cancel context.CancelCauseFunc
	ctx    context.Context
}

// requestBody is the body of a request: a first frame, and then what is written into a pipe. The first frame has no writer, because that would need a
// goroutine.
type requestBody struct {
	io.Reader
	pipe   *io.PipeReader
	closed atomic.Bool
}

func newRequestBody(first io.Reader, pipe *io.PipeReader) *requestBody {
	return &requestBody{Reader: io.MultiReader(first, pipe), pipe: pipe}
}

// Read implements io.Reader. A closed body gives no bytes, so that a transport which tries a request again cannot send the first frame twice.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	return b.Reader.Read(p)
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return b.pipe.Close()
}

// refusedError is an answer of the supervisor other than 200. None of the code ran.
type refusedError struct {
	status int
	text   string
}

func (e *refusedError) Error() string { return e.text }

// Is distinguishes a sandbox that has no room from one that cannot be used.
func (e *refusedError) Is(target error) bool {
	return target == sandbox.ErrBusy && e.status == http.StatusTooManyRequests
}

// open starts a stream with an encoded Open. nested means that another run waits for this run. The stream ends with
// ctx and with its close method, and when the client is closed.
func (c *Client) open(ctx context.Context, open []byte, nested bool) (*stream, error) {
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	if err := c.agree(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if c.ctx.Err() != nil {
			return nil, errClosed
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	in, out := io.Pipe()
	first, err := protocol.NewFrame(protocol.TypeOpen, open)
	var req *http.Request
	if err == nil {
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, c.url, newRequestBody(first, in))
	}
	if err != nil {
		stop()
		cancel(err)
		return nil, err
	}
	req.Header.Set(threadHeader, c.opts.ThreadID)
	req.Header.Set(protocol.VersionHeader, strconv.Itoa(int(c.agreed.Load())))
	if nested {
		req.Header.Set(nestedHeader, "true")
	}
	// The transport checks the context only between two pieces of the request's body, and waits for the pieces here.
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	s := &stream{pipe: out, ctx: ctx, cancel: func(cause error) { stop(); cancel(cause) }}
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
		var refused *refusedError // an answer that arrived takes precedence over whatever ended the stream later
		if cause := context.Cause(ctx); cause != nil && !errors.As(err, &refused) {
			err = cause
		}
		s.cancel(err)
		return nil, err
	}
	s.body = resp.Body
	// Waiting for a piece that the sandbox has no room for ignores the context; closing the answer ends that wait.
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	s.Conn = protocol.NewConn(resp.Body, out, nil)
	return s, nil
}

// close ends the stream. The supervisor then kills the child.
func (s *stream) close(cause error) {
	s.cancel(cause)
	_ = s.pipe.CloseWithError(cause)
	_ = s.body.Close()
}
