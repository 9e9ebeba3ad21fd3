//go:build linux && (amd64 || arm64)

package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
)

// ThreadHeader names the thread of a stream. NestedHeader is set on a run for which another run waits. Path is the
// path of streams.
const (
	ThreadHeader = "Skein-Thread"
	NestedHeader = "Skein-Nested"
	Path         = "/v1/isolate"
)

var logger = log.New(os.Stderr, "sandbox: ", log.LstdFlags|log.LUTC)

func logf(format string, args ...any) { logger.Printf(format, args...) }

// Server is one supervisor.
type Server struct {
	opts      Options
	certs     *certificates
	spawner   *spawner
	reaper    *reaper
	small     *program // of children whose code comes compiled, if there is one
	pools     []*pool
	runs      *compiler.Runs // compiles runs for children of the small program; nil where there is none
	compiling *pool          // of children that compile runs that it has not compiled; none of them waits ready
	admission *admission
	thread    atomic.Pointer[string] // the one thread that this supervisor serves
	activity  *activity
	mu        sync.Mutex // guards draining, and entering streams
	draining  bool
	streams   sync.WaitGroup
	last      atomic.Uint32   // protocol.Kind of the newest stream
	ran       atomic.Bool     // whether there was a run
	warm      chan struct{}   // closed when the compiler of runs is ready, or there is none
	prepared  chan struct{}   // closed when all pools have their images
	ctx       context.Context // ends when the supervisor closes
	cancel    context.CancelFunc
}

// New returns a supervisor and starts its first children.
func New(o Options) (*Server, error) {
	o.Engine = cmp.Or(o.Engine, sandbox.QuickJS)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := lockdown.Supported(); err != nil {
		if !o.AllowUnconfined {
			return nil, fmt.Errorf("%w: start with --allow-unconfined to run code without them", err)
		}
		logf("%v: running unconfined, as --allow-unconfined says", err)
	} else {
		o.AllowUnconfined = false
	}
	certs, err := loadCertificates(o.CertDir)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates: %w", err)
	}
	s := &Server{
		opts: o, certs: certs, spawner: newSpawner(slackOf(o)), reaper: newReaper(os.Getpid() == 1),
		admission: newAdmission(o), warm: make(chan struct{}), prepared: make(chan struct{}), activity: newActivity(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.small = s.findSmall()
	s.pools = s.makePools()
	if s.small != nil {
		s.addCompiler()
	}
	go s.prepareImages()
	return s, nil
}

// Serve serves until ctx ends, then lets current streams finish within Options.Drain.
func (s *Server) Serve(ctx context.Context, listener, health net.Listener) error {
	defer s.close()
	streams := &http.Server{
		Handler:           s.handler(),
		TLSConfig:         s.certs.serverConfig(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(handshakeNoise{}, "", 0),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 512, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	probes := &http.Server{Handler: s.health(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 4 << 10}
	failed := make(chan error, 2)
	go func() { failed <- streams.ServeTLS(listener, "", "") }()
	if health != nil {
		go func() { failed <- probes.Serve(health) }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.drain()
	_ = streams.Close()
	_ = probes.Close()
	s.streams.Wait()
	return err
}

// enter counts a stream in and returns true, unless the supervisor is shutting down.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.streams.Add(1)
	return true
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain waits for the current streams, at most as long as they may take. New streams are refused meanwhile.
func (s *Server) drain() {
	if s.opts.Drain <= 0 {
		return
	}
	over := make(chan struct{})
	go func() {
		s.streams.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(s.opts.Drain):
	}
}

func (s *Server) close() {
	s.cancel()
	if s.runs != nil {
		s.runs.Close()
	}
	<-s.prepared
	for _, p := range s.pools {
		p.close()
	}
	if s.small != nil {
		_ = s.small.file.Close()
	}
	s.spawner.close()
	s.reaper.close()
}

// health answers the kubelet: ready once children wait, and not ready while draining.
func (s *Server) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case s.isDraining():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case s.thread.Load() == nil && (!s.full() || !s.isWarm()):
			http.Error(w, "starting", http.StatusServiceUnavailable)
		default:
			_, _ = w.Write([]byte("ok\n"))
		}
	})
	return mux
}

// pin binds the supervisor to the first thread that comes, for its whole life (COD-08).
func (s *Server) pin(thread string) bool {
	if s.thread.CompareAndSwap(nil, &thread) {
		for _, p := range s.pools {
			p.calmFor(firstRefill)
		}
		return true
	}
	return *s.thread.Load() == thread
}

// handshakeNoise drops what probes and port scans cause, and logs the rest.
type handshakeNoise struct{}

func (handshakeNoise) Write(b []byte) (int, error) {
	logf("%s", b)
	return len(b), nil
}
