// Package console serves the page of `kubectl skein console` on loopback. Everything that the page reads and does goes through the
// viewer's kubeconfig, whose credentials stay in this process. The page gets a cookie for this server alone.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Object names an object that the page shows. An object that has got its name meanwhile has another UID.
type Object struct {
	Namespace, Name string
	UID             types.UID
}

// Options say what the console shows, and have the parts of the command that it uses. All functions have to be set.
type Options struct {
	// Config has the address of the API server and the viewer's credentials.
	Config *rest.Config
	// Context is the name of the kubeconfig's context.
	Context string
	// Namespace is that of the kubeconfig or of the flag.
	Namespace string
	// AllNamespaces makes the page show all namespaces first, instead of Namespace.
	AllNamespaces bool
	// Version is that of the command.
	Version string
	// Page has the files of the page.
	Page fs.FS
	// Thread returns what a list shows of a Thread.
	Thread func(*skeinv1.Thread) ThreadRow
	// Effect returns what a list shows of a ScheduledEffect.
	Effect func(*skeinv1.ScheduledEffect) EffectRow
	// RunEffect fires a ScheduledEffect now, and returns a line for each due time that says what became of it. A repeat with the same key fires
	// nothing.
	RunEffect func(ctx context.Context, o Object, key string) ([]string, error)
	// SuspendEffect suspends or resumes a ScheduledEffect. The message says what keeps it from firing nevertheless.
	SuspendEffect func(ctx context.Context, o Object, suspend bool) (changed bool, message string, err error)
	// Role returns the ClusterRole that has a right, or "".
	Role func(verb, resource, group string) string
	// Advice returns what to do about an error of the API server, or "".
	Advice func(metav1.Status) string

	// Retry is how long lists wait before they are read again after an error. A default holds when it is nil.
	Retry *wait.Backoff
	// WriteTimeout is how long a page may take to read a message of a live list. A default holds when it is 0.
	WriteTimeout time.Duration
}

const (
	headerTimeout       = 10 * time.Second
	idleTimeout         = 2 * time.Minute
	maxHeaderBytes      = 32 << 10
	defaultWriteTimeout = 20 * time.Second
)

// Server serves the page, its lists and what the page may use of the runtime API.
type Server struct {
	options Options
	token   string // opens a session; in the address that the command prints
	session string // the value of the cookie
	opening opening
	port    string
	policy  string          // the Content-Security-Policy of the page
	hosts   map[string]bool // values of the header Host by which this server may be called

	objects *objects
	history *runtimeclient.Client
	proxy   *proxy
	lists   *lists
	sockets chan struct{} // has an element for each open live list

	serving sync.WaitGroup // requests, those with a WebSocket too
}

// Listen opens the port on loopback; 0 means any that is free.
func Listen(port int) (net.Listener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of this machine: %w: choose another one with --port, or leave it out", port, err)
	}
	return l, nil
}

// New returns a server for a listener of Listen.
func New(l net.Listener, o Options) (*Server, error) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	cfg := rest.CopyConfig(o.Config)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if cfg.QPS == 0 {
		cfg.QPS = -1 // the API server limits the rate
	}
	o.Config = cfg
	s := &Server{options: o, token: rand.Text(), session: rand.Text(), port: port, policy: pagePolicy(port), sockets: make(chan struct{}, maxSockets)}
	s.hosts = map[string]bool{"127.0.0.1:" + port: true, "localhost:" + port: true}
	if port == "80" { // browsers leave it out
		s.hosts["127.0.0.1"], s.hosts["localhost"] = true, true
	}
	if s.objects, err = newObjects(cfg); err != nil {
		return nil, err
	}
	if s.history, err = runtimeclient.New(cfg); err != nil {
		return nil, err
	}
	if s.proxy, err = newProxy(cfg); err != nil {
		return nil, err
	}
	s.lists = newLists(s)
	return s, nil
}

// Address returns the address that opens a session. Everyone who has it can act with the viewer's rights while the server runs.
func (s *Server) Address() string { return s.addressWith(s.token) }

// Once returns an address that opens one session, within a minute.
func (s *Server) Once() string { return s.addressWith(s.opening.create()) }

func (s *Server) addressWith(token string) string {
	return "http://127.0.0.1:" + s.port + "/login?token=" + token
}

// Serve serves until ctx ends. It then closes all connections, and returns nil when nothing is left of them.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // the libraries below would write to the terminal
	defer cancel()
	s.lists.start(ctx)
	server := &http.Server{
		Handler:           s.counted(s.Handler()),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // of streams too, which Shutdown would wait for
	defer stop()
	err := server.Serve(l)
	cancel()
	_ = server.Close()
	s.serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// counted lets Serve wait for requests. http.Server does not wait for those that have become WebSockets.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serving.Add(1)
		defer s.serving.Done()
		next.ServeHTTP(w, r)
	})
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/session", s.showSession)
	mux.HandleFunc("GET /api/namespaces", s.listNamespaces)
	mux.HandleFunc("GET /api/rights", s.showRights)
	mux.HandleFunc("GET /api/live", s.serveLive)
	mux.HandleFunc("POST /api/effects/{namespace}/{name}/run", s.runEffect)
	mux.HandleFunc("POST /api/effects/{namespace}/{name}/suspension", s.suspendEffect)
	s.proxy.register(mux)
	mux.HandleFunc("GET /{file...}", s.servePage)
	mux.HandleFunc("/", unused)
	return s.guarded(mux)
}
