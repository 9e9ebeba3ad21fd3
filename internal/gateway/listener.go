package gateway

import (
	"net"
	"net/netip"
	"sync"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

// partOfAddress is the part of all connections that one address may have open, so that a client that opens many and sends slowly leaves
// room for others.
const partOfAddress = 8

// limitListener returns a listener that has at most n connections open. Further ones wait in the kernel's queue. Of one address it has
// n/partOfAddress at most and closes further ones at once, unless the address is trusted: a proxy connects for many clients.
func limitListener(l net.Listener, n int, trusted func(netip.Addr) bool) net.Listener {
	return &limited{
		Listener: l, free: make(chan struct{}, n), closed: make(chan struct{}),
		trusted: trusted, most: max(n/partOfAddress, 1), from: map[netip.Prefix]int{},
	}
}

type limited struct {
	net.Listener
	free    chan struct{}
	once    sync.Once
	closed  chan struct{}
	trusted func(netip.Addr) bool
	most    int // of one address

	mu   sync.Mutex
	from map[netip.Prefix]int // connections that are open
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		select {
		case l.free <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.free
			return nil, err
		}
		if leave, ok := l.enter(c.RemoteAddr()); ok {
			return &limitedConn{Conn: c, leave: leave}, nil
		}
		_ = c.Close()
		<-l.free
	}
}

// enter counts a connection. It reports whether its address may have one more.
func (l *limited) enter(addr net.Addr) (leave func(), ok bool) {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil || l.trusted(at.Addr().Unmap().WithZone("")) {
		return func() { <-l.free }, true
	}
	of := flow.Network(at.Addr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[of] >= l.most {
		return nil, false
	}
	l.from[of]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.from[of]--; l.from[of] == 0 {
			delete(l.from, of)
		}
		<-l.free
	}, true
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}
