// Package mcptool offers the tools of MCP servers to models (TOL-02): Tool objects with spec.mcp. One session is
// kept with each server, and what the server lists is remembered, so that an execution begins without waiting; a server
// that is gone costs its own tools and nothing else. Nothing that a server says is trusted.
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

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

const (
	// DefaultTimeout of a call whose Tool does not say.
	DefaultTimeout = time.Minute
	// connectTimeout bounds the handshake and the listing of tools.
	connectTimeout = 15 * time.Second
	// patience is how long an execution waits for the tools of a server that is not known to fail, and impatience for
	// those of one that is.
	patience   = 5 * time.Second
	impatience = time.Second
	// listTTL is after how long a list is asked for again of a server that does not tell of changes.
	listTTL = 5 * time.Minute
	// idleTTL is after how long a session that nobody uses is closed.
	idleTTL = 15 * time.Minute
	// oldTTL is the same for a version of a Tool that another one has followed: runs that began before may use it yet.
	oldTTL = time.Minute
	// firstBackoff and lastBackoff are how long a server that failed is let be, unless a call needs it.
	firstBackoff = time.Second
	lastBackoff  = 30 * time.Second
)

// Server is spec.mcp of a Tool, read and checked, with its secrets.
type Server struct {
	Namespace, Name string // of the Tool object
	UID             string
	// Version changes whenever anything below does.
	Version string
	// Generation of the Tool object: of two versions, the one of the lower is the older.
	Generation int64
	URL        string
	Transport  skeinv1.MCPTransport
	Headers    http.Header
	Tools      []string // all when empty
	Prefix     string
	Timeout    time.Duration // of one call; DefaultTimeout when 0
}

// Options of Servers.
type Options struct {
	Network *outbound.Network
	Log     logr.Logger
	// Watch is told when a server has become reachable (err is nil) or unreachable; may be nil. It must not block.
	Watch func(s *Server, err error)
	// Redact takes the secrets of a namespace out of a text, before a part of it is cut off; nil for as it is.
	Redact func(namespace, text string) string
}

// Servers keeps the sessions of one process.
type Servers struct {
	opts Options

	mu     sync.Mutex
	known  map[identity]*server
	newest map[[2]string]newest // by the namespace and the name of the Tool; kept when its servers are forgotten
	closed bool
}

// newest is of which Tool the last of its versions is.
type newest struct {
	uid        string
	generation int64
}

// identity of a server: of each version of a Tool there is one. Runs that began with the one before keep it to their end,
// and none takes the session of another away.
type identity struct{ namespace, name, uid, version string }

func (s *Server) identity() identity { return identity{s.Namespace, s.Name, s.UID, s.Version} }

// New makes an empty set.
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
	return &Servers{opts: o, known: map[identity]*server{}, newest: map[[2]string]newest{}}
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
	errClosed = errors.New("the manager stops")
	// errForgotten: the server was forgotten between being asked for and being used.
	errForgotten = errors.New("its session was closed, since nobody had used it for long: try again")
)

// of gives what is known of a server. One that is made for a run that began before its Tool was edited is an old one from
// its beginning: it may have been forgotten while the run was busy elsewhere, and is not what the Tool says now.
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
	if n := s.newest[of]; n.uid == id.uid && config.Generation < n.generation {
		ttl = oldTTL
	} else {
		s.newest[of] = newest{id.uid, config.Generation}
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

// server is one server, as this process knows it.
type server struct {
	owner  *Servers
	id     identity
	config *Server
	idle   *time.Timer
	ttl    atomic.Int64 // of which idle is

	mu      sync.Mutex
	session *session
	// refreshing is closed when the attempt to connect and to list that is under way is over; nil when there is none.
	refreshing chan struct{}
	tools      []Remote
	listedAt   time.Time // zero: never
	stale      bool      // the server says that its list has changed, or its session was lost
	err        error     // of the last attempt
	told       bool      // there was one, and whoever watches knows
	failures   int
	retryAt    time.Time
	closed     bool
	progress   map[string]func(Progress) // by token
}

func (v *server) used() { v.idle.Reset(time.Duration(v.ttl.Load())) }

// forget closes a server that nobody has used for long.
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

// Tools gives the tools of a server as they were last listed; none of a server that has never been reached. err says why
// the list may be old or empty. It waits a few seconds at most.
func (s *Servers) Tools(ctx context.Context, config *Server) ([]Remote, error) {
	list, err := s.listed(ctx, config)
	if errors.Is(err, errForgotten) {
		return s.listed(ctx, config)
	}
	return list, err
}

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
	now := time.Now()
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

// refresh begins to connect and to list, unless that is under way, and gives what is closed when it is over. Called
// with the lock held.
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
			v.session, v.tools, v.listedAt = s, tools, time.Now()
			v.failures, v.retryAt = 0, time.Time{}
		default:
			v.session, v.stale = nil, true
			v.retryAt = time.Now().Add(min(lastBackoff, firstBackoff<<min(v.failures, 8)))
			v.failures++
		}
		turned := !v.told || (v.err == nil) != (err == nil)
		v.err, v.told = err, true
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

// attempt lists the tools, by the session that is there or a new one.
func (v *server) attempt(have *session) (s *session, tools []Remote, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if have != nil {
		if tools, err = v.list(ctx, have); err == nil {
			return have, tools, nil
		}
		have.close() // it may only have been this session
	}
	if s, err = v.connect(ctx); err != nil {
		return nil, nil, fmt.Errorf("it cannot be reached: %s", v.explain(err))
	}
	if tools, err = v.list(ctx, s); err != nil {
		return s, nil, fmt.Errorf("it does not list its tools: %s", v.explain(err))
	}
	return s, tools, nil
}

// connected gives the session, made now when there is none: a call does not heed that the server failed a moment ago.
func (v *server) connected(ctx context.Context) (*session, error) {
	v.mu.Lock()
	if v.session != nil || v.closed {
		defer v.mu.Unlock()
		if v.closed {
			return nil, errForgotten
		}
		return v.session, nil
	}
	done := v.refresh()
	v.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		return nil, v.err
	}
	return v.session, nil
}

// lost forgets a session that is of no use any more.
func (v *server) lost(s *session) {
	v.mu.Lock()
	if v.session == s {
		v.session, v.stale = nil, true
	}
	v.mu.Unlock()
}

// changed notes that the server's list is another now.
func (v *server) changed() {
	v.mu.Lock()
	v.stale = true
	v.mu.Unlock()
}
