package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/apiserver/audited"
	"github.com/skein-dev/skein/internal/apiserver/auth"
	"github.com/skein-dev/skein/internal/apiserver/endpoints"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/apiserver/flow"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/router"
	"github.com/skein-dev/skein/internal/apiserver/serving"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/thread"
)

// Options are the options of a Server. Threads, Engine, Children, Effects, Objects and Reader are required, and either
// Kubeconfig or both Authenticator and Authorizer.
type Options struct {
	Threads  *thread.Service
	Engine   Engine
	Children family.Children
	Effects  Effects
	Objects  family.Objects
	// Secrets are removed from every answer. It may be nil.
	Secrets *redact.Registry
	// Recorder records Events about decisions of people. It may be nil.
	Recorder events.EventRecorder

	// Reader finds Thread objects by name; it is the manager's cache.
	Reader client.Reader
	// LiveReader is read when Reader does not have a name yet, because a cache lags behind. It may be nil.
	LiveReader client.Reader

	// Kubeconfig reaches the API server that authenticates and authorizes requests. Its identity needs the
	// ClusterRole system:auth-delegator and, in kube-system, the Role extension-apiserver-authentication-reader.
	Kubeconfig *rest.Config
	// Authenticator and Authorizer replace it where there is no API server.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer

	// Listener is where to serve. When nil, the server listens on BindAddress and Port.
	Listener    net.Listener
	BindAddress string // empty means all addresses
	Port        int    // 0 means a free port

	// Certificate is the serving certificate, as EnsureServing returns it. When nil, the server uses tls.crt and
	// tls.key in CertDir and reads them again when they change. Without a CertDir it uses a self-signed certificate
	// (see CABundle).
	Certificate *serving.Certificate
	CertDir     string

	// Audit writes audit events when it is set (policy file, log path).
	Audit *genericoptions.AuditOptions

	// Draining reports whether the replica is stopping. Then it refuses requests that may take long. It may be nil.
	Draining func() bool
	// Memory is what requests draw from. nil is without limit.
	Memory *membudget.Budget
	// Flow bounds what users and namespaces may ask for. The zero value sets no limits.
	Flow flow.Limits

	// RequestTimeout bounds requests other than events, files and code. 0 means 60 s.
	RequestTimeout time.Duration

	heartbeat       time.Duration // the interval of pings to clients of streams
	slowClient      time.Duration // a batch of events that takes longer ends the stream
	transferTimeout time.Duration // bounds one piece of a stream, in either direction
	setupWait       time.Duration // how long to wait for a Thread object's conversation
	flushWait       time.Duration // how long GET flush waits for a version
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.RequestTimeout, time.Minute}, {&o.heartbeat, 15 * time.Second}, {&o.slowClient, 10 * time.Second},
		{&o.transferTimeout, 30 * time.Second}, {&o.setupWait, 5 * time.Second},
		{&o.flushWait, 5 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
}

func (o *Options) check() error {
	switch {
	case o.Threads == nil, o.Engine == nil, o.Children == nil, o.Effects == nil, o.Objects == nil, o.Reader == nil:
		return errors.New("runtime API: Threads, Engine, Children, Effects, Objects and Reader are required")
	case o.Kubeconfig == nil && (o.Authenticator == nil || o.Authorizer == nil):
		return errors.New("runtime API: set Kubeconfig to delegate authentication and authorization, or set both Authenticator and Authorizer")
	}
	return nil
}

// Server serves the runtime API. It is a Runnable of a manager and runs on every replica.
type Server struct {
	opts        Options
	listener    net.Listener
	certificate dynamiccertificates.CertKeyContentProvider
	generic     *genericapiserver.GenericAPIServer
	lookup      *lookup.Finder
	authorizer  authorizer.Authorizer
	control     *flow.Control
	auditor     *audited.Auditor
	stopping    chan struct{} // closed when Start's context ends
}

// New returns a server that listens already, so that Addr is known. Start makes it answer.
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
	cfg := genericapiserver.NewConfig(router.Codecs)
	cfg.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	cfg.ExternalAddress = s.listener.Addr().String()
	cfg.SecureServing = &genericapiserver.SecureServingInfo{Listener: s.listener, Cert: s.certificate}
	cfg.LoopbackClientConfig = &rest.Config{} // no privileged client of our own: without a token no client can act as it
	cfg.SkipOpenAPIInstallation = true
	cfg.EnableProfiling = false
	cfg.RequestTimeout = s.opts.RequestTimeout
	// All callers would share these, so one could take them all. Flow bounds each user and namespace instead, and package auth what waits for
	// an answer about a right.
	cfg.MaxRequestsInFlight, cfg.MaxMutatingRequestsInFlight = 0, 0
	// Requests are answered first; then connections have two seconds to end. Without this, a connection that has sent
	// part of a request would delay the end of the process for as long as a request may take.
	cfg.ShutdownSendRetryAfter = true
	cfg.RequestInfoResolver = endpoints.OptionsAsGet{RequestInfoResolver: genericapiserver.NewRequestInfoResolver(cfg)}
	cfg.ReadyzChecks = append(cfg.ReadyzChecks, healthz.NamedCheck("store", func(r *http.Request) error {
		return s.opts.Threads.Store().Ping(r.Context())
	}))
	if err := s.configureAuth(cfg); err != nil {
		return err
	}
	s.authorizer = cfg.Authorization.Authorizer
	rt := s.router()
	cfg.LongRunningFunc = rt.LongRunning
	s.control = flow.New(s.opts.Flow, clock.RealClock{}, rt.LongRunning, router.WriteStatus)
	cfg.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return s.control.WrapChain(s.control.Wrap(withTracing(handler, rt.LongRunning)), func(h http.Handler) http.Handler {
			return genericapiserver.DefaultBuildHandlerChain(h, c)
		})
	}
	if s.opts.Audit != nil {
		if err := s.opts.Audit.ApplyTo(cfg); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if cfg.AuditBackend != nil {
			cfg.AuditBackend = cleaned{cfg.AuditBackend}
			s.auditor = audited.New(cfg.AuditBackend, cfg.AuditPolicyRuleEvaluator)
		}
	}
	var err error
	if s.generic, err = cfg.Complete(nil).New("skein-runtime-api", genericapiserver.NewEmptyDelegate()); err != nil {
		return err
	}
	return rt.Install(s.generic)
}

// router returns the router of all routes. Call it after the authorizer is set.
func (s *Server) router() *router.Router {
	s.lookup = &lookup.Finder{Threads: s.opts.Threads, Reader: s.opts.Reader, Live: s.opts.LiveReader, SetupWait: s.opts.setupWait}
	h := s.handlers()
	return &router.Router{Find: s.lookup, Routes: h.routes(), Views: h.views(), Actions: actions, Secrets: s.opts.Secrets, Draining: s.opts.Draining, Memory: s.opts.Memory}
}

// Start serves until ctx ends. It returns when all requests have been answered.
func (s *Server) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer stop()
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// NeedLeaderElection returns false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Flow returns the limits of requests, for requests that do not come through the runtime API.
func (s *Server) Flow() *flow.Control { return s.control }

// Auditor returns what records requests that do not come through the runtime API. It is nil when there is no audit.
func (s *Server) Auditor() *audited.Auditor { return s.auditor }

// CABundle returns the PEM of the authority that signed the serving certificate. It is unknown only with a CertDir.
func (s *Server) CABundle() []byte {
	if c, ok := s.certificate.(*serving.Certificate); ok {
		return c.CABundle()
	}
	return nil
}

// loadCertificate chooses the serving certificate.
func (s *Server) loadCertificate() error {
	if s.opts.Certificate == nil && s.opts.CertDir != "" {
		c, err := dynamiccertificates.NewDynamicServingContentFromFiles("runtime-api",
			filepath.Join(s.opts.CertDir, "tls.crt"), filepath.Join(s.opts.CertDir, "tls.key"))
		if err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
		s.certificate = c
		return nil
	}
	c := s.opts.Certificate
	if c == nil {
		names := []string{"localhost", "127.0.0.1", "::1"}
		if a, ok := s.listener.Addr().(*net.TCPAddr); ok && !a.IP.IsUnspecified() && !a.IP.IsLoopback() {
			names = append(names, a.IP.String())
		}
		var err error
		if c, err = serving.SelfSigned(names...); err != nil {
			return err
		}
	}
	s.certificate = c
	return nil
}

// configureAuth sets the authenticator and the authorizer of cfg.
func (s *Server) configureAuth(cfg *genericapiserver.Config) error {
	if s.opts.Kubeconfig == nil {
		cfg.Authentication.Authenticator, cfg.Authorization.Authorizer = s.opts.Authenticator, s.opts.Authorizer
		return nil
	}
	return auth.Delegate(cfg, s.opts.Kubeconfig)
}

// live returns the reader that knows every object.
func (o *Options) live() client.Reader {
	if o.LiveReader != nil {
		return o.LiveReader
	}
	return o.Reader
}
