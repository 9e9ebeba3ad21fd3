// Package mcptool offers the tools of MCP servers to models (TOL-02): Tool objects with spec.mcp. It keeps one session
// with each server and caches the server's list of tools, so that an execution starts without waiting. A server that is
// down only makes its own tools unavailable. Nothing that a server sends is trusted.
package mcptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

const (
	// DefaultTimeout is the timeout of a call when the Tool sets none.
	DefaultTimeout = time.Minute
	// connectTimeout limits the handshake together with the listing of tools.
	connectTimeout = 15 * time.Second
	// patience is how long an execution waits for the tools of a server that has not failed, and impatience for those
	// of a server that has.
	patience   = 5 * time.Second
	impatience = time.Second
	// listTTL is after how long the list is requested again from a server that does not announce changes.
	listTTL = 5 * time.Minute
	// idleTTL is after how long an unused session is closed.
	idleTTL = 15 * time.Minute
	// oldTTL is idleTTL for a version of a Tool that has a newer version: runs that began earlier may still use it.
	oldTTL = time.Minute
	// firstBackoff and lastBackoff are the shortest and the longest time without connecting to a server that failed,
	// unless a call needs it.
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
	// maxNewest is of how many Tools the newest version is remembered. Those that were used least recently are forgotten first: a run
	// that still uses an old version of such a Tool makes it count as the newest, until the newer one is used.
	maxNewest = 10_000
)

// Server is spec.mcp of a Tool, parsed and checked, with its secrets.
type Server struct {
	Namespace, Name string // of the Tool object
	UID             string
	// Version changes whenever a field below changes.
	Version string
	// Generation is that of the Tool object. Of two versions, the one with the lower generation is older.
	Generation int64
	URL        string
	Transport  skeinv1.MCPTransport
	Headers    http.Header
	Tools      []string // all when empty
	Prefix     string
	Timeout    time.Duration // of one call; DefaultTimeout when 0
}

// Options are the options of Servers.
type Options struct {
	Network *outbound.Network
	// Memory is what the messages of servers draw from that no call waits for. nil is without limit.
	Memory *membudget.Budget
	Log    logr.Logger
	// Watch is called when a server has become reachable (err is nil) or unreachable. It may be nil and must not block.
	Watch func(s *Server, err error)
	// Redact removes the secrets of a namespace from a text. It must be called before the text is cut. nil leaves texts
	// as they are.
	Redact func(namespace, text string) string
}

// Servers holds the sessions of one process. mu guards the fields below it.
type Servers struct {
	opts Options

	mu     sync.Mutex
	known  map[identity]*server
	newest *lru.Cache // [2]string, the namespace and the name of a Tool → newest; entries stay when servers are forgotten
	closed bool
}

// newest identifies the newest version seen of a Tool.
type newest struct {
	uid        string
	generation int64
}

// identity identifies one version of a Tool's server. Runs that began with an earlier version keep using that version
// to their end, and no version takes away the session of another.
type identity struct{ namespace, name, uid, version string }

func (s *Server) identity() identity { return identity{s.Namespace, s.Name, s.UID, s.Version} }

// New returns an empty set.
func New(o Options) *Servers {
	if o.Watch == nil {
		o.Watch = func(*Server, error) {}
	}
	if o.Redact == nil {
		o.Redact = func(_, text string) string { return text }
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return &Servers{opts: o, known: map[identity]*server{}, newest: lru.New(maxNewest)}
}

// Close ends all sessions.
func (s *Servers) Close() {
	s.mu.Lock()
	s.closed = true
	list := s.known
	s.known = map[identity]*server{}
	s.mu.Unlock()
	for _, srv := range list {
		srv.close()
	}
}

var (
	errClosed = errors.New("the manager is stopping")
	// errForgotten means that the server was forgotten between its lookup and its use.
	errForgotten = errors.New("its session was closed because it was idle: try again")
)

// of returns the entry of a server, and creates it when needed. A run that began before
// its Tool was edited still asks for the old server, perhaps after its entry was removed. The entry that of then creates counts as old
// at once.
func (s *Servers) of(config *Server) (*server, error) {
	id := config.identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if have := s.known[id]; have != nil {
		have.used()
		return have, nil
	}
	made := &server{owner: s, id: id, config: config, progress: map[string]func(Progress){}}
	of, ttl := [2]string{id.namespace, id.name}, idleTTL
	if n, ok := s.newest.Get(of); ok && n.(newest).uid == id.uid && config.Generation < n.(newest).generation {
		ttl = oldTTL
	} else {
		s.newest.Add(of, newest{id.uid, config.Generation})
		for other, v := range s.known {
			if other.namespace == id.namespace && other.name == id.name {
				v.ttl.Store(int64(oldTTL))
				v.used()
			}
		}
	}
	made.ttl.Store(int64(ttl))
	made.idle = time.AfterFunc(ttl, made.forget)
	s.known[id] = made
	return made, nil
}

// server is the process's state of one server. mu guards the fields below it.
type server struct {
	owner  *Servers
	id     identity
	config *Server
	idle   *time.Timer
	ttl    atomic.Int64 // the present duration of idle

	mu      sync.Mutex
	session *session
	// refreshing is closed when the present attempt to connect and list is over; nil when there is none.
	refreshing chan struct{}
	tools      []Remote
	listedAt   time.Time // zero when never listed
	stale      bool      // the server announced a change of its list, or its session was lost
	err        error     // of the last attempt
	attempted  bool      // an attempt has ended, and Watch was called where needed
	failures   int
	retryAt    time.Time
	closed     bool
	progress   map[string]func(Progress) // by token
}

func (v *server) used() { v.idle.Reset(time.Duration(v.ttl.Load())) }

// forget closes a server that has not been used for a long time.
func (v *server) forget() {
	v.mu.Lock()
	busy := len(v.progress) > 0
	v.mu.Unlock()
	if busy {
		v.used()
		return
	}
	v.owner.mu.Lock()
	if v.owner.known[v.id] == v {
		delete(v.owner.known, v.id)
	}
	v.owner.mu.Unlock()
	v.close()
}

func (v *server) close() {
	v.idle.Stop()
	v.mu.Lock()
	v.closed = true
	s := v.session
	v.session = nil
	v.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Tools returns the tools of a server as last listed; none for a server that was never reached. err says why the list
// may be old or empty. It waits a few seconds at most.
func (s *Servers) Tools(ctx context.Context, config *Server) ([]Remote, error) {
	list, err := s.listed(ctx, config)
	if errors.Is(err, errForgotten) {
		return s.listed(ctx, config)
	}
	return list, err
}

// listed is Tools, but returns errForgotten when the server is forgotten meanwhile.
func (s *Servers) listed(ctx context.Context, config *Server) ([]Remote, error) {
	v, err := s.of(config)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	if v.closed {
		defer v.mu.Unlock()
		return nil, errForgotten
	}
	now := ownclock.Now()
	if v.session != nil && !v.stale && now.Sub(v.listedAt) < listTTL {
		defer v.mu.Unlock()
		return slices.Clone(v.tools), nil
	}
	wait := patience
	if v.failures > 0 {
		wait = impatience
	}
	var done chan struct{}
	if v.refreshing != nil || !now.Before(v.retryAt) {
		done = v.refresh()
	}
	v.mu.Unlock()
	if done != nil {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	err = v.err
	if err == nil && v.refreshing != nil {
		err = errors.New("it has not listed its tools yet")
	}
	return slices.Clone(v.tools), err
}

// refresh starts a goroutine that connects and lists, unless one is running, and returns the channel that is closed
// when it is done. The caller holds mu.
func (v *server) refresh() chan struct{} {
	if v.refreshing != nil {
		return v.refreshing
	}
	done := make(chan struct{})
	v.refreshing, v.stale = done, false
	have := v.session
	go func() {
		s, tools, err := v.attempt(have)
		v.mu.Lock()
		v.refreshing = nil
		switch {
		case v.closed:
			err = errForgotten
		case err == nil:
			v.session, v.tools, v.listedAt = s, tools, ownclock.Now()
			v.failures, v.retryAt = 0, time.Time{}
		default:
			v.session, v.stale = nil, true
			v.retryAt = ownclock.Now().Add(min(lastBackoff, firstBackoff<<min(v.failures, 8)))
			v.failures++
		}
		turned := !v.attempted || (v.err == nil) != (err == nil)
		v.err, v.attempted = err, true
		v.mu.Unlock()
		if err != nil && s != nil {
			s.close()
		}
		if old := time.Duration(v.ttl.Load()) == oldTTL; turned && !old && !errors.Is(err, errForgotten) {
			v.owner.opts.Watch(v.config, err)
		}
		close(done)
	}()
	return done
}

// attempt lists the tools over the present session or a new one.
func (v *server) attempt(have *session) (s *session, tools []Remote, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if have != nil {
		if tools, err = v.list(ctx, have); err == nil {
			return have, tools, nil
		}
		have.close() // only this session may have failed
	}
	if s, err = v.connect(ctx); err != nil {
		return nil, nil, fmt.Errorf("it cannot be reached: %s", v.explain(err))
	}
	if tools, err = v.list(ctx, s); err != nil {
		return s, nil, fmt.Errorf("it does not list its tools: %s", v.explain(err))
	}
	return s, tools, nil
}

// hangUps is how often a call connects anew to a server that closes its connections at once.
const hangUps = 3

// connected returns the session and connects when there is none. A call does not wait for the backoff of a failed
// server.
func (v *server) connected(ctx context.Context) (*session, error) {
	for tries := 0; ; tries++ {
		s, refreshed, err := v.sessionOrRefresh(tries > 0)
		switch {
		case refreshed == nil:
			return s, err
		case tries == hangUps:
			return nil, errors.New("it closes each connection at once")
		}
		select {
		case <-refreshed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sessionOrRefresh returns the session, or an error, or what is closed when there may be one. tried says that a refresh has just ended: then
// its error counts.
func (v *server) sessionOrRefresh(tried bool) (s *session, refreshed <-chan struct{}, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return nil, nil, errForgotten
	case v.session != nil:
		return v.session, nil, nil
	case tried && v.err != nil:
		return nil, nil, v.err
	}
	return nil, v.refresh(), nil // the first one, or the session was lost as soon as it was there
}

// lost drops a session that is no longer usable.
func (v *server) lost(s *session) {
	v.mu.Lock()
	if v.session == s {
		v.session, v.stale = nil, true
	}
	v.mu.Unlock()
}

// changed marks the list as outdated.
func (v *server) changed() {
	v.mu.Lock()
	v.stale = true
	v.mu.Unlock()
}
