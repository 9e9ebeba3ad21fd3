package client

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/pki"
)

const (
	// maxLines bounds the connections that are kept. Each costs the manager and its sandbox some tens of KiB, and a
	// ping every few seconds.
	maxLines = 64
	// linesAtOnce bounds how many are opened at the same time, because this is work ahead of time and must not delay
	// other work.
	linesAtOnce = 2
	lineTimeout = 5 * time.Second
	// linesRenewed is how often lost connections are opened again.
	linesRenewed = 30 * time.Second
)

// Lines keeps connections to unclaimed sandboxes, so that a thread that claims one need not wait for a handshake
// (docs/adr/0017-sandbox-certificates-and-claims.md). A line claims nothing: a sandbox becomes a thread's with its
// first stream. A line serves one Client, once, and only while the certificates have not changed since it was made.
// mu guards the set.
type Lines struct {
	credentials func(ctx context.Context) ([]byte, pki.Pair, error)
	configs     *pki.ClientConfigs
	places      chan struct{}
	ctx         context.Context
	cancel      context.CancelFunc
	most        int

	mu    sync.Mutex
	lines map[string]*line
}

// line is a connection that is open or being opened.
type line struct {
	client *Client // has no thread id
	made   bool
}

// NewLines returns an empty set. The arguments are those of Options.
func NewLines(credentials func(ctx context.Context) ([]byte, pki.Pair, error), configs *pki.ClientConfigs) *Lines {
	l := &Lines{credentials: credentials, configs: configs, places: make(chan struct{}, linesAtOnce), most: maxLines, lines: map[string]*line{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go func() {
		beat := time.NewTicker(linesRenewed)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				l.renew()
			case <-l.ctx.Done():
				return
			}
		}
	}()
	return l
}

// renew opens again what was lost or could not be opened. A waiting sandbox causes no event that could do it.
func (l *Lines) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.lines {
		if n.made && !n.client.good() {
			o := n.client.opts
			l.remove(name)
			l.start(name, o)
		}
	}
}

// Keep connects to a sandbox ahead of time, in the background. name identifies the line for Options and Drop. If the
// name has a line already that works or is being opened, Keep does nothing. A sandbox that cannot be reached gets no
// line, and the claimer dials it.
func (l *Lines) Keep(name, address, serverName string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	if old := l.lines[name]; old != nil {
		if !old.made || old.client.good() && old.client.opts.Address == address {
			return
		}
		l.remove(name)
	}
	if len(l.lines) < l.most || l.makePlace(serverName) {
		l.start(name, Options{Address: address, ServerName: serverName, Credentials: l.credentials, Configs: l.configs})
	}
}

// makePlace makes room for one more line and reports whether it could. It removes a line whose sandbox was not
// reached, or else one of the pool that has the most lines, if that pool then still has no fewer than the pool that
// asks. So no pool can hold all lines while others want some. A pool is identified by the name with which its
// sandboxes are dialled. mu is held.
func (l *Lines) makePlace(serverName string) bool {
	count := map[string]int{}
	for name, n := range l.lines {
		if n.made && !n.client.good() {
			l.remove(name)
			return true
		}
		count[n.client.opts.ServerName]++
	}
	richest := ""
	for pool, n := range count {
		if n > count[richest] {
			richest = pool
		}
	}
	if count[richest] <= count[serverName]+1 {
		return false
	}
	for name, n := range l.lines {
		if n.client.opts.ServerName == richest {
			l.remove(name)
			return true
		}
	}
	return false
}

// start starts opening a line. mu is held.
func (l *Lines) start(name string, o Options) {
	n := &line{client: newClient(o)}
	l.lines[name] = n
	go func() {
		select {
		case l.places <- struct{}{}:
			defer func() { <-l.places }()
		case <-n.client.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(l.ctx, lineTimeout)
		defer cancel()
		defer context.AfterFunc(n.client.ctx, cancel)()
		err := n.client.Connect(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		n.made = l.lines[name] == n // a failed one is found by renew
		if !n.made || err != nil {
			go func() { _ = n.client.Close() }()
		}
	}()
}

// Drop closes the line of this name, if there is one.
func (l *Lines) Drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(name)
}

// remove closes a line without waiting for the network. mu is held.
func (l *Lines) remove(name string) {
	if n := l.lines[name]; n != nil {
		delete(l.lines, name)
		go func() { _ = n.client.Close() }()
	}
}

// Close closes all lines for good.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	for name := range l.lines {
		l.remove(name)
	}
	return nil
}

// Count returns how many connections wait.
func (l *Lines) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if line.made && line.client.good() {
			n++
		}
	}
	return n
}

// take returns the waiting connection of a name, which then belongs to the caller, or nil when none works. When the
// certificates have changed since a line was made, take replaces all lines with new ones, because new peers do not
// trust a replaced authority.
func (l *Lines) take(ctx context.Context, name string) *http.ClientConn {
	if l == nil || name == "" {
		return nil
	}
	ca, own, err := l.credentials(ctx)
	if err != nil {
		return nil // dialling reports the error too
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[name]
	if n == nil || !n.made {
		return nil // a line that is being opened is closed when its sandbox is seen to be claimed
	}
	if !n.client.shows(ca, own) {
		for other, stale := range l.lines {
			if stale.made && !stale.client.shows(ca, own) {
				l.remove(other)
				if other != name {
					l.start(other, stale.client.opts)
				}
			}
		}
		return nil
	}
	delete(l.lines, name)
	if !n.client.good() {
		go func() { _ = n.client.Close() }()
		return nil
	}
	return n.client.early.Load()
}

// credentials are the certificates with which a connection was opened.
type credentials struct {
	ca  []byte
	own pki.Pair
}

// shows reports whether the connection was opened with these certificates.
func (c *Client) shows(ca []byte, own pki.Pair) bool {
	with := c.with.Load()
	return with != nil && bytes.Equal(with.ca, ca) && bytes.Equal(with.own.Cert, own.Cert)
}

// good reports whether the early connection still works. The transport pings the other side every few seconds, and
// closes the connection when no answer comes.
func (c *Client) good() bool {
	conn := c.early.Load()
	return conn != nil && conn.Err() == nil && conn.Available() > 0
}
