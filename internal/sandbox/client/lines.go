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
	// maxLines bounds the connections that are kept: each costs the manager and its sandbox some tens of KiB, and a
	// ping every few seconds.
	maxLines = 64
	// linesAtOnce bounds those that are made at a time: it is work ahead of time, and must not be in the way.
	linesAtOnce = 2
	lineTimeout = 5 * time.Second
	// linesRenewed is how often what was lost is made anew.
	linesRenewed = 30 * time.Second
)

// Lines keep connections to sandboxes that are nobody's yet, so that who claims one need not wait for a handshake
// (docs/adr/0017-sandbox-certificates-and-claims.md). A line takes nothing: a sandbox is a thread's by its first
// stream. It serves one Client, once, and only while the certificates are those that it was made with.
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

// line is a connection, or one that is being made.
type line struct {
	client *Client // without a thread
	made   bool
}

// NewLines makes an empty set. The arguments are those of Options.
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

// renew makes anew what was lost or could not be made: a sandbox that waits gives no other occasion.
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

// Keep connects to a sandbox ahead of time, in the background. name is how Options and Drop call the line; a name that
// has a good line already, or one under way, keeps that. A sandbox that cannot be reached has none: its claimer dials.
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

// makePlace takes a place from a sandbox that was not reached, else from one of the pool that has the most of them, if
// it then still has no fewer than the one that asks: no pool can have all of them where others want some. A pool is
// known by the name that its sandboxes are dialled by. mu is held.
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

// start makes a line; mu is held.
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
		n.made = l.lines[name] == n // or has failed, which renew finds
		if !n.made || err != nil {
			go func() { _ = n.client.Close() }()
		}
	}()
}

// Drop closes the line of a name, if there is one.
func (l *Lines) Drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(name)
}

// remove closes a line without waiting for the network; mu is held.
func (l *Lines) remove(name string) {
	if n := l.lines[name]; n != nil {
		delete(l.lines, name)
		go func() { _ = n.client.Close() }()
	}
}

// Close closes all lines, for good.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	for name := range l.lines {
		l.remove(name)
	}
	return nil
}

// Count gives how many connections wait.
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

// take gives the connection that waits under a name, which is the caller's from then on; nil when there is no good one.
// Where certificates have changed since, all that was made with the old ones is made anew: an authority that was
// replaced is trusted by nobody who comes after.
func (l *Lines) take(ctx context.Context, name string) *http.ClientConn {
	if l == nil || name == "" {
		return nil
	}
	ca, own, err := l.credentials(ctx)
	if err != nil {
		return nil // dialling says so too
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[name]
	if n == nil || !n.made {
		return nil // one under way is closed when its sandbox is seen to be claimed
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

// credentials are what a connection was made with.
type credentials struct {
	ca  []byte
	own pki.Pair
}

// shows tells whether the connection was made with these certificates.
func (c *Client) shows(ca []byte, own pki.Pair) bool {
	with := c.with.Load()
	return with != nil && bytes.Equal(with.ca, ca) && bytes.Equal(with.own.Cert, own.Cert)
}

// good tells whether the connection made ahead has not been lost. The transport asks the other side every few
// seconds, and gives it up when no answer comes.
func (c *Client) good() bool {
	conn := c.early.Load()
	return conn != nil && conn.Err() == nil && conn.Available() > 0
}
