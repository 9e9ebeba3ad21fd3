package kube

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// listener accepts on several addresses with one port. The API server takes only one listener, and 0.0.0.0 would
// expose it to the machine's network.
type listener struct {
	parts []net.Listener
	conns chan accepted
	once  sync.Once
	quit  chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

// listen binds addrs: the first with a free port, and the others with the same port.
func listen(addrs ...netip.Addr) (*listener, error) {
	for {
		l, err := tryListen(addrs)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue // the port is free on the first address only
		}
		return l, err
	}
}

func tryListen(addrs []netip.Addr) (*listener, error) {
	l := &listener{conns: make(chan accepted), quit: make(chan struct{})}
	port := uint16(0)
	for _, a := range addrs {
		p, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
		if err != nil {
			l.closeParts()
			return nil, fmt.Errorf("listening on %s: %w", a, err)
		}
		l.parts = append(l.parts, p)
		port = p.Addr().(*net.TCPAddr).AddrPort().Port()
	}
	for _, p := range l.parts {
		go l.accept(p)
	}
	return l, nil
}

func (l *listener) accept(p net.Listener) {
	for {
		c, err := p.Accept()
		select {
		case l.conns <- accepted{c, err}:
		case <-l.quit:
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.conns:
		return a.conn, a.err
	case <-l.quit:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.quit) })
	return l.closeParts()
}

func (l *listener) closeParts() error {
	var errs []error
	for _, p := range l.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Addr returns the first address.
func (l *listener) Addr() net.Addr { return l.parts[0].Addr() }

func (l *listener) port() int { return l.Addr().(*net.TCPAddr).Port }

// freePort returns a loopback port that is free now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
