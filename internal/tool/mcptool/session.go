package mcptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/membudget/jsonbody"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

const (
	// maxMessage is the largest size of one message of a server. Results with pictures are large.
	maxMessage = 16 << 20
	// keepAlive is how often a session is checked, so that a server that is gone is detected.
	keepAlive = 30 * time.Second
)

// session is a session with a server.
type session struct {
	*mcp.ClientSession
	cancel context.CancelFunc
	once   sync.Once
}

// close ends the session. The server is told if it still listens.
func (s *session) close() {
	s.once.Do(func() {
		go func() {
			_ = s.Close() // the result does not matter
			s.cancel()
		}()
	})
}

// connect opens a session. The session outlives ctx.
func (v *server) connect(ctx context.Context) (*session, error) {
	origin, err := url.Parse(v.config.URL)
	if err != nil {
		return nil, errors.New("spec.mcp.url is not a URL")
	}
	httpClient := &http.Client{
		Transport: &transport{network: v.owner.opts.Network.For(v.config.Namespace), memory: v.memory, origin: origin, headers: v.config.Headers},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if !outbound.SameOrigin(req.URL, origin) || len(via) > 5 {
				return &outbound.RefusedError{Message: fmt.Sprintf("the MCP server redirects to the host %s: give its final URL", req.URL.Hostname())}
			}
			return nil
		},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "skein", Version: "v1alpha1"}, &mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{}, // the client offers nothing to servers
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { v.changed() },
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { v.progressed(req.Params) },
		KeepAlive:                   keepAlive,
		KeepAliveFailureThreshold:   2,
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
	})
	var by mcp.Transport = &mcp.StreamableClientTransport{Endpoint: v.config.URL, HTTPClient: httpClient, MaxEventSize: maxMessage}
	if v.config.Transport == skeinv1.MCPSSE {
		by = &mcp.SSEClientTransport{Endpoint: v.config.URL, HTTPClient: httpClient, MaxEventSize: maxMessage}
	}
	// The streams of a session end with the context with which it was opened.
	life, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	made, err := client.Connect(life, by, nil)
	if err != nil || !stop() {
		cancel()
		if err == nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	s := &session{ClientSession: made, cancel: cancel}
	go func() {
		_ = made.Wait() // the caller that needed the session reports why it ended
		v.lost(s)
		cancel()
	}()
	return s, nil
}

// memory opens an account for a message that no call waits for.
func (v *server) memory() *membudget.Account { return v.owner.opts.Memory.Open(v.config.Namespace) }

// transport adds the headers that authenticate requests, and refuses requests to other servers.
type transport struct {
	network *outbound.Scope
	memory  func() *membudget.Account // for what no call waits for
	origin  *url.URL
	headers http.Header
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !outbound.SameOrigin(req.URL, t.origin) {
		return nil, &outbound.RefusedError{Message: fmt.Sprintf("the MCP server refers to another host, %s, which tools do not follow", req.URL.Hostname())}
	}
	req = req.Clone(req.Context())
	for name, values := range t.headers {
		req.Header[name] = values
	}
	sent, ofCall := req.Context().Value(deliveryKey{}).(*delivery)
	if ofCall = ofCall && req.Method == http.MethodPost; ofCall {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: sent.began}))
	}
	resp, err := t.network.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if ofCall {
		sent.answered(resp.StatusCode)
	}
	in := &jsonbody.Body{ReadCloser: resp.Body, Context: req.Context(), Account: membudget.From(req.Context())}
	if sent != nil {
		in.OnRefused = sent.refuse
	}
	if in.Account == nil {
		in.Account = t.memory()
		in.OnClose = in.Account.Close
	}
	resp.Body = in
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") { // the events of a stream are limited one by one
		in.Events = true
		return resp, nil
	}
	in.ReadCloser = http.MaxBytesReader(nil, in.ReadCloser, maxMessage)
	if !ofCall {
		return resp, nil
	}
	// The session would end with a body that cannot be read. So it gets one that is there already.
	body, err := io.ReadAll(in)
	_ = in.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// delivery records what happened to a call on its way: whether any of it was sent, the status code of the response, and whether there
// was memory for it.
// mu guards its fields.
type delivery struct {
	mu      sync.Mutex
	sent    bool
	code    int
	refused error
	end     context.CancelCauseFunc // of the call
}

type deliveryKey struct{}

func (d *delivery) began() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = true
}

func (d *delivery) answered(code int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.code = code
}

// refuse ends the call, because there is no memory for its answer.
func (d *delivery) refuse(err error) {
	d.mu.Lock()
	d.refused = err
	d.mu.Unlock()
	d.end(err)
}

// noMemory returns why there is no memory for the answer, or nil.
func (d *delivery) noMemory() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

// undone reports whether the call certainly had no effect: it was not sent, or the server does not know the session,
// most likely because it was restarted.
func (d *delivery) undone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.sent || d.code == http.StatusNotFound || d.code == http.StatusBadRequest
}

// notSent is the message of the library's own error for a request that its transport could not send. The error also has
// the cause.
const notSent = "rejected by transport"

// saidBy returns the error that a server answered with; nil when the server gave no such answer.
func saidBy(err error) *jsonrpc.Error {
	var said *jsonrpc.Error
	if errors.As(err, &said) && said.Message != notSent {
		return said
	}
	return nil
}

// maxErrorShown is how much of a server's error is shown.
const maxErrorShown = 4 << 10

// explain returns why something failed, without the URL and limited in length.
func (v *server) explain(err error) string {
	host := "of the MCP server"
	if u, parseErr := url.Parse(v.config.URL); parseErr == nil {
		host = u.Hostname()
	}
	var network *url.Error
	said := saidBy(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Sprintf("the host %s does not answer", host)
	case errors.As(err, &network):
	case said != nil:
		return v.owner.bounded(v.config, said.Message, maxErrorShown)
	}
	return v.owner.bounded(v.config, outbound.Explain(err, host), maxErrorShown)
}
