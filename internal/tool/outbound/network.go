// Package outbound is how tools reach the network: HTTP to public addresses only, so that neither a model nor whoever
// declares a tool gets at what answers within the cluster, on its nodes or in their cloud (TOL-02).
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
	// Allowed hosts; every host when there are none.
	Allowed []Host
	// Private hosts may have addresses that are not public. They are allowed, too.
	Private []Host
	// Opened returns the hosts that the tools of a namespace may reach, too, though their addresses are not public. Some
	// addresses stay closed to them: see Closed. May be nil.
	Opened func(namespace string) []Host
	// Forbidden reports whether an address stays closed to hosts of Opened, beside those of Closed: the API server's and
	// the manager's own. May be nil.
	Forbidden func(netip.AddrPort) bool
}

// RefusedError says that a host may not be reached, and what to do.
type RefusedError struct {
	Message string
	// Final: no declaration for the namespace would open the address.
	Final bool
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// Network makes connections under a policy. It is one for the process: connections are kept and shared by host. Those to
// hosts that a namespace opens are its own, so that none is used in the name of another one.
type Network struct {
	policy    Policy
	transport *http.Transport

	mu     sync.Mutex
	opened map[string]*http.Transport // by namespace
}

// The flags of the manager that the errors name.
const (
	FlagAllowed = "tool-allowed-hosts"
	FlagPrivate = "tool-private-hosts"
)

// New makes a network.
func New(p Policy) *Network {
	n := &Network{policy: p, opened: map[string]*http.Transport{}}
	n.transport = newTransport(n.dial)
	return n
}

func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		// No proxy: it would be the proxy whose address is looked at.
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

// check tells whether a URL may be asked for; addresses are looked at when a connection is made.
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

// dial connects to a host. Whether its address may be used is asked for the very address that is connected to, so that a
// name which resolves to one address now and to another later gains nothing.
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

// Explain says why a request failed, for whoever reads a tool's result: without the URL, which may hold secrets.
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
