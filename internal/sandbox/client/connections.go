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
	// maxConnections bounds the connections that are kept. Each costs the manager and its sandbox some tens of KiB, and a
	// ping every few seconds.
	maxConnections = 64
	// dialsAtOnce bounds how many are opened at the same time, because this is work ahead of time and must not delay
	// other work.
	dialsAtOnce      = 2
	dialAheadTimeout = 5 * time.Second
	// renewInterval is how often lost connections are opened again.
	renewInterval = 30 * time.Second
)

// Connections is a pool of connections to unclaimed sandboxes, dialled ahead of time so that a thread that claims one
// need not wait for a handshake (docs/adr/0017-sandbox-certificates-and-claims.md). A connection claims nothing: a
// sandbox becomes a thread's with its first stream. A connection serves one Client, once, and only while the
// certificates have not changed since it was made. mu guards the pool.
type Connections struct {
	credentials func(ctx context.Context) ([]byte, pki.Pair, error)
	configs     *pki.ClientConfigs
	places      chan struct{}
	ctx         context.Context
	cancel      context.CancelFunc
	most        int

	mu     sync.Mutex
	byName map[string]*connection
}

// connection is one that is open or being opened.
type connection struct {
	client *Client // has no thread id
	made   bool
}

// NewConnections returns an empty pool of connections. The arguments are those of Options.
func NewConnections(credentials func(ctx context.Context) ([]byte, pki.Pair, error), configs *pki.ClientConfigs) *Connections {
	cs := &Connections{credentials: credentials, configs: configs, places: make(chan struct{}, dialsAtOnce), most: maxConnections, byName: map[string]*connection{}}
	cs.ctx, cs.cancel = context.WithCancel(context.Background())
	go func() {
		beat := time.NewTicker(renewInterval)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				cs.renew()
			case <-cs.ctx.Done():
				return
			}
		}
	}()
	return cs
}

// renew opens again what was lost or could not be opened. A waiting sandbox causes no event that could do it.
func (cs *Connections) renew() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for name, n := range cs.byName {
		if n.made && !n.client.good() {
			o := n.client.opts
			cs.remove(name)
			cs.start(name, o)
		}
	}
}

// Keep connects to a sandbox ahead of time, in the background. name identifies the connection for Options and Drop. If
// the name has a connection already that works or is being opened, Keep does nothing. A sandbox that cannot be reached
// gets no connection, and the claimer dials it.
func (cs *Connections) Keep(name, address, serverName string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.ctx.Err() != nil {
		return
	}
	if old := cs.byName[name]; old != nil {
		if !old.made || old.client.good() && old.client.opts.Address == address {
			return
		}
		cs.remove(name)
	}
	if len(cs.byName) < cs.most || cs.evict(serverName) {
		cs.start(name, Options{Address: address, ServerName: serverName, Credentials: cs.credentials, Configs: cs.configs})
	}
}

// evict removes a connection to make place for another, and reports whether it could. It removes one whose sandbox was
// not reached, or else one to the SandboxPool that has the most connections, if that pool then still has no fewer than
// the pool that asks. So no pool can hold all connections while others want some. A pool is identified by the name
// with which its sandboxes are dialled. mu is held.
func (cs *Connections) evict(serverName string) bool {
	count := map[string]int{}
	for name, n := range cs.byName {
		if n.made && !n.client.good() {
			cs.remove(name)
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
	for name, n := range cs.byName {
		if n.client.opts.ServerName == richest {
			cs.remove(name)
			return true
		}
	}
	return false
}

// start starts opening a connection. mu is held.
func (cs *Connections) start(name string, o Options) {
	n := &connection{client: newClient(o)}
	cs.byName[name] = n
	go func() {
		select {
		case cs.places <- struct{}{}:
			defer func() { <-cs.places }()
		case <-n.client.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(cs.ctx, dialAheadTimeout)
		defer cancel()
		defer context.AfterFunc(n.client.ctx, cancel)()
		err := n.client.Connect(ctx)
		cs.mu.Lock()
		defer cs.mu.Unlock()
		n.made = cs.byName[name] == n // a failed one is found by renew
		if !n.made || err != nil {
			go func() { _ = n.client.Close() }()
		}
	}()
}

// Drop closes the connection of this name, if there is one.
func (cs *Connections) Drop(name string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.remove(name)
}

// remove closes a connection without waiting for the network. mu is held.
func (cs *Connections) remove(name string) {
	if n := cs.byName[name]; n != nil {
		delete(cs.byName, name)
		go func() { _ = n.client.Close() }()
	}
}

// Close closes all connections for good.
func (cs *Connections) Close() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.cancel()
	for name := range cs.byName {
		cs.remove(name)
	}
	return nil
}

// Count returns how many connections wait.
func (cs *Connections) Count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	n := 0
	for _, c := range cs.byName {
		if c.made && c.client.good() {
			n++
		}
	}
	return n
}

// take gives the caller the waiting connection of a name, and the version of the protocol for it. It returns nil if there is none
// that works. If the certificates have changed since that connection was made, take closes all stale connections, opens new ones
// for the other names, and returns nil: new peers do not trust a replaced authority.
func (cs *Connections) take(ctx context.Context, name string) (*http.ClientConn, int32) {
	if cs == nil || name == "" {
		return nil, 0
	}
	ca, own, err := cs.credentials(ctx)
	if err != nil {
		return nil, 0 // dialling reports the error too
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	n := cs.byName[name]
	if n == nil || !n.made {
		return nil, 0 // a connection that is being opened is closed when its sandbox is seen to be claimed
	}
	if !n.client.shows(ca, own) {
		for other, stale := range cs.byName {
			if stale.made && !stale.client.shows(ca, own) {
				cs.remove(other)
				if other != name {
					cs.start(other, stale.client.opts)
				}
			}
		}
		return nil, 0
	}
	delete(cs.byName, name)
	if !n.client.good() {
		go func() { _ = n.client.Close() }()
		return nil, 0
	}
	return n.client.early.Load(), n.client.agreed.Load()
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
