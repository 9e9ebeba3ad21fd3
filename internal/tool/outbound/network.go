// Package outbound is the network access of tools: HTTP to public addresses only. So neither a model nor the author of
// a tool reaches what answers within the cluster, on its nodes or in their cloud (TOL-02).
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"
)

// Policy says which hosts tools may reach.
type Policy struct {
	// Allowed lists the hosts that tools may reach. When it is empty, they may reach every host.
	Allowed []Host
	// Private lists hosts that may have addresses that are not public. They are also allowed.
	Private []Host
	// Opened returns further hosts that the tools of a namespace may reach although their addresses are not public.
	// Some addresses stay closed to them: see Closed. It may be nil.
	Opened func(namespace string) []Host
	// Forbidden reports whether an address stays closed to hosts of Opened, in addition to those of Closed: the
	// addresses of the API server and of the manager itself. It may be nil.
	Forbidden func(netip.AddrPort) bool
}

// RefusedError says that a host may not be reached, and what to do.
type RefusedError struct {
	Message string
	// Final reports that no declaration of the namespace can open the address.
	Final bool
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// Network makes connections under a policy. There is one for each process: connections are kept and shared by host.
// Connections to hosts that a namespace opens belong to that namespace, so that no other namespace uses them. mu guards
// opened.
type Network struct {
	policy    Policy
	transport *http.Transport

	mu     sync.Mutex
	opened map[string]*http.Transport // by namespace
}

// The flags of the manager that errors name.
const (
	FlagAllowed = "tool-allowed-hosts"
	FlagPrivate = "tool-private-hosts"
)

// New returns a network.
func New(p Policy) *Network {
	n := &Network{policy: p, opened: map[string]*http.Transport{}}
	n.transport = newTransport(n.dial)
	return n
}

func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		// No proxy: otherwise the proxy's address would be checked instead of the host's.
		DialContext:            dial,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Close closes idle connections.
func (n *Network) Close() {
	n.transport.CloseIdleConnections()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.opened {
		t.CloseIdleConnections()
	}
}

// check returns an error when a URL may not be requested. Addresses are checked when a connection is made.
func (n *Network) check(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &RefusedError{Message: fmt.Sprintf("the scheme %q cannot be used: give a URL with https:// or http://", u.Scheme)}
	case u.Hostname() == "":
		return &RefusedError{Message: "the URL has no host"}
	case u.User != nil:
		return &RefusedError{Message: "the URL has a user in it: use auth"}
	case len(n.policy.Allowed) == 0 || Match(n.policy.Allowed, u) || Match(n.policy.Private, u):
		return nil
	}
	return &RefusedError{Message: fmt.Sprintf("the host %s is not one that tools may reach: the manager's --%s names those", u.Hostname(), FlagAllowed)}
}

// dial connects to a host. It checks the IP address that it dials, not the name, so a name that resolves to different
// addresses over time gains nothing.
func (n *Network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !match(n.policy.Private, host, port) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || !Public(at.Addr()) {
				return notPublic(host)
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// Explain returns why a request failed, for the reader of a tool's result. It leaves out the URL, which may contain
// secrets.
func Explain(err error, host string) string {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Message
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return fmt.Sprintf("there is no host %s", host)
		}
		return fmt.Sprintf("the host %s cannot be looked up at present", host)
	}
	for {
		var wrapped *url.Error
		if !errors.As(err, &wrapped) {
			break
		}
		err = wrapped.Err
	}
	return fmt.Sprintf("the host %s cannot be asked: %v", host, err)
}
