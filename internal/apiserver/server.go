package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Engine is what the runtime API asks of the engine.
type Engine interface {
	Stop(ctx context.Context, threadID, reason string) error
	Terminate(ctx context.Context, threadID, reason string) error
	Destroy(ctx context.Context, threadID string) error
	RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error)
	Outside
}

// Children is what it asks of the registry of children.
type Children interface {
	List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error)
}

// Effects is what it asks of scheduled effects.
type Effects = engine.Effects

// Options of a Server. Threads, Engine, Children, Effects and Reader are needed, and either Kubeconfig or
// both Authenticator and Authorizer.
type Options struct {
	Threads  *thread.Service
	Engine   Engine
	Children Children
	Effects  Effects
	// Secrets are kept out of every answer; may be nil.
	Secrets *redact.Registry
	// Recorder of Events about what people decide; nil for none.
	Recorder events.EventRecorder

	// Reader finds Thread objects by name; the manager's cache.
	Reader client.Reader
	// LiveReader is asked when Reader does not know a name, as a cache lags behind; nil for never.
	LiveReader client.Reader

	// Kubeconfig reaches the API server that authenticates and authorizes requests. The identity behind it
	// needs the ClusterRole system:auth-delegator and, in kube-system, the Role
	// extension-apiserver-authentication-reader.
	Kubeconfig *rest.Config
	// Authenticator and Authorizer stand in for it where there is no API server.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer

	// Listener to serve on; when nil, BindAddress and Port are listened on.
	Listener    net.Listener
	BindAddress string // all addresses when empty
	Port        int    // 0 for a free one

	// Certificate to serve with, as EnsureServing gives it. When nil, tls.crt and tls.key in CertDir, read
	// again when they change. When that is empty too, a self-signed one (CABundle).
	Certificate *Certificate
	CertDir     string

	// Audit writes audit events when set (policy file, log path).
	Audit *genericoptions.AuditOptions

	// RequestTimeout of requests other than events, files and code: 60 s when 0.
	RequestTimeout time.Duration

	heartbeat       time.Duration // of events
	slowClient      time.Duration // a batch of events that takes longer ends the stream
	transferTimeout time.Duration // for one piece of a stream, either way
	setupWait       time.Duration // for a Thread object's conversation
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.RequestTimeout, time.Minute}, {&o.heartbeat, 15 * time.Second}, {&o.slowClient, 10 * time.Second},
		{&o.transferTimeout, 30 * time.Second}, {&o.setupWait, 5 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
}

func (o *Options) check() error {
	switch {
	case o.Threads == nil, o.Engine == nil, o.Children == nil, o.Effects == nil, o.Reader == nil:
		return errors.New("runtime API: Threads, Engine, Children, Effects and Reader are needed")
	case o.Kubeconfig == nil && (o.Authenticator == nil || o.Authorizer == nil):
		return errors.New("runtime API: give Kubeconfig to delegate authentication and authorization to, or both an Authenticator and an Authorizer")
	}
	return nil
}

// Server serves the runtime API. It is a Runnable of a manager, on every replica.
type Server struct {
	opts        Options
	listener    net.Listener
	certificate dynamiccertificates.CertKeyContentProvider
	generic     *genericapiserver.GenericAPIServer
	lookup      *lookup
	authorizer  authorizer.Authorizer
	stopping    chan struct{} // closed when Start's context ends
}

// New makes a server and begins to listen, so that Addr is known; Start makes it answer.
func New(o Options) (*Server, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, listener: o.Listener, stopping: make(chan struct{})}
	if s.listener == nil {
		l, err := net.Listen("tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.Port)))
		if err != nil {
			return nil, fmt.Errorf("runtime API: cannot listen: %w; choose another --runtime-api-bind-address", err)
		}
		s.listener = l
	}
	if err := s.setUp(); err != nil {
		_ = s.listener.Close()
		return nil, fmt.Errorf("runtime API: %w", err)
	}
	return s, nil
}

func (s *Server) setUp() error {
	if err := s.loadCertificate(); err != nil {
		return err
	}
	rt := &router{
		lookup:  &lookup{threads: s.opts.Threads, reader: s.opts.Reader, live: s.opts.LiveReader, setupWait: s.opts.setupWait},
		routes:  s.routes(),
		secrets: s.opts.Secrets,
		views:   s.views(),
	}
	s.lookup = rt.lookup
	cfg := genericapiserver.NewConfig(codecs)
	cfg.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	cfg.ExternalAddress = s.listener.Addr().String()
	cfg.SecureServing = &genericapiserver.SecureServingInfo{Listener: s.listener, Cert: s.certificate}
	cfg.LoopbackClientConfig = &rest.Config{} // no privileged client of our own: it has no token, so nobody can be it
	cfg.SkipOpenAPIInstallation = true
	cfg.EnableProfiling = false
	cfg.LongRunningFunc = rt.longRunning
	cfg.RequestTimeout = s.opts.RequestTimeout
	// Requests are answered first, and then connections have two seconds to end. Without this, a connection that has sent part of
	// a request holds up the end of the process for as long as a request may take.
	cfg.ShutdownSendRetryAfter = true
	cfg.RequestInfoResolver = optionsAsGet{genericapiserver.NewRequestInfoResolver(cfg)}
	cfg.ReadyzChecks = append(cfg.ReadyzChecks, healthz.NamedCheck("store", func(r *http.Request) error {
		return s.opts.Threads.Store().Ping(r.Context())
	}))
	if err := s.authenticate(cfg); err != nil {
		return err
	}
	s.authorizer = cfg.Authorization.Authorizer
	if s.opts.Audit != nil {
		if err := s.opts.Audit.ApplyTo(cfg); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	var err error
	if s.generic, err = cfg.Complete(nil).New("skein-runtime-api", genericapiserver.NewEmptyDelegate()); err != nil {
		return err
	}
	return rt.install(s.generic)
}

// Start serves until ctx ends and gives back when all requests have been answered.
func (s *Server) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer stop()
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// CABundle is the PEM of the authority that signed the serving certificate, when it is known: always but with
// a CertDir.
func (s *Server) CABundle() []byte {
	if c, ok := s.certificate.(*Certificate); ok {
		return c.CABundle()
	}
	return nil
}
