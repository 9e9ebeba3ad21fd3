// Package gateway is the door for end users: HTTP for browsers and bots that have no Kubernetes identity. It serves the
// agents that ThreadGateways name, and nothing else (docs/adr/0052-a-gateway-for-end-users.md).
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/audited"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/observe"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Engine is the part of the engine that the gateway needs.
type Engine interface {
	MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks
	Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error)
	// CheckMessageRoom returns an error when a namespace takes no more messages from outside.
	CheckMessageRoom(ctx context.Context, namespace string) error
	// ServeEndpoint answers a request with the code of a ThreadEndpoint.
	ServeEndpoint(ctx context.Context, threadID string, req endpoints.Request, to endpoints.Answer) error
	// ThreadID asks the code of a ThreadGateway which conversation a request means. Its answer must be checked.
	ThreadID(ctx context.Context, c *definition.IDCode, request map[string]any) (string, error)
}

// Gateways finds ThreadGateways.
type Gateways interface {
	Find(ctx context.Context, namespace, name string) (*definitions.Gateway, error)
}

// Objects creates Threads.
type Objects interface {
	CreateGatewayThread(ctx context.Context, g *definitions.Gateway, id, user string) (*skeinv1.Thread, error)
	// RemoveRefused deletes the object of a Thread that is not stored, when the request for the Thread is refused. It fails
	// when the object has changed since it was read.
	RemoveRefused(ctx context.Context, t *skeinv1.Thread) error
}

// Share counts requests that are under way. flow.Control is one.
type Share interface {
	Enter(who, namespace string, lasting bool) (done func(), err error)
}

// Options are the options of a Server.
type Options struct {
	Listener net.Listener
	// TLS is how to serve HTTPS. The listener speaks HTTP without it.
	TLS      *tls.Config
	Threads  *thread.Service
	Engine   Engine
	Gateways Gateways
	Objects  Objects
	// Receivers and Received serve WebhookReceivers. Without them there are none.
	Receivers Receivers
	Received  ReceivedThreads
	Reader    client.Reader // a cache of Threads
	Live      client.Reader
	// Secrets are removed from every answer. It may be nil.
	Secrets *redact.Registry
	// Network reaches the id providers of gateways. Without it such gateways refuse all requests.
	Network *outbound.Network
	// Audit records each request. It may be nil.
	Audit *audited.Auditor
	// Share holds the requests of a namespace to its share of the replica. It may be nil.
	Share Share
	// TrustedProxies are the addresses whose X-Forwarded-For and users count.
	TrustedProxies []netip.Prefix
	// Draining reports whether the replica is stopping. Then requests are refused, and another replica answers them. It may be nil.
	Draining func() bool
	// Memory is what requests draw from. nil is without limit.
	Memory *membudget.Budget
	Logger logr.Logger
}

// Bounds of connections. A client that sends slowly, or that does not read, loses its connection.
const (
	headerTime     = 10 * time.Second
	requestTime    = 30 * time.Second // header and body
	idleTime       = time.Minute
	writeTime      = 10 * time.Second // one piece of an answer
	pingTime       = 15 * time.Second
	setupTime      = 10 * time.Second // until a new conversation is set up
	stopTime       = 10 * time.Second
	maxHeader      = 16 << 10
	maxConnections = 4096
)

// Server serves ThreadGateways. It is a Runnable of a manager and runs on every replica.
type Server struct {
	opts     Options
	finder   *lookup.Finder
	limits   *limiters
	hooks    *hookRates
	tails    *observe.Tails
	stopping chan struct{}

	headerTime, requestTime, pingTime time.Duration
	connections                       int
}

// New returns a server. Start makes it answer.
func New(o Options) (*Server, error) {
	if o.Listener == nil || o.Threads == nil || o.Engine == nil || o.Gateways == nil || o.Objects == nil || o.Reader == nil {
		return nil, errors.New("gateway: Listener, Threads, Engine, Gateways, Objects and Reader are required")
	}
	return &Server{
		opts:     o,
		finder:   &lookup.Finder{Threads: o.Threads, Reader: o.Reader, Live: o.Live, SetupWait: setupTime},
		limits:   newLimiters(),
		hooks:    newHookRates(),
		tails:    tailsOf(o.Threads.Store()),
		stopping: make(chan struct{}), headerTime: headerTime, requestTime: requestTime, pingTime: pingTime, connections: maxConnections,
	}, nil
}

// tailsOf returns what reads the newest events of conversations, once for all who wait for an answer in one.
func tailsOf(s store.Store) *observe.Tails {
	return observe.NewTails(observe.TailOptions{Subscribe: s.SubscribeThread, Read: s.Events, Recheck: pingTime})
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.opts.Listener.Addr() }

// NeedLeaderElection returns false: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends. Requests that wait for an answer are told so; the agents work on.
func (s *Server) Start(ctx context.Context) error {
	h := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: s.headerTime, ReadTimeout: s.requestTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    serverLog(s.opts.Logger),
		BaseContext: func(net.Listener) context.Context { return logr.NewContext(context.WithoutCancel(ctx), s.opts.Logger) },
	}
	served := make(chan error, 1)
	go func() {
		l := limitListener(s.opts.Listener, s.connections, s.isTrusted)
		if s.opts.TLS != nil {
			h.TLSConfig = s.opts.TLS
			served <- h.ServeTLS(l, "", "")
			return
		}
		served <- h.Serve(l)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	close(s.stopping)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := h.Shutdown(last); err != nil {
		return errors.Join(h.Close(), errIgnoreDeadline(err))
	}
	return nil
}

// errIgnoreDeadline returns nil when connections were still open after their time: they have been closed.
func errIgnoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
