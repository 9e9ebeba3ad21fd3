// Package outbound is the network access of tools, models, webhooks and id providers: HTTP to public addresses only. So neither a
// model nor the author of a Tool, a Model, a Webhook or a ThreadGateway reaches what answers within the cluster, on its nodes or in their cloud (TOL-02).
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

// Policy says which hosts may be reached.
type Policy struct {
	// Allowed lists the hosts that tools, webhooks and id providers may reach. When it is empty, they may reach every host. It does not
	// concern models.
	Allowed []Host
	// Private lists hosts that may have addresses that are not public, loopback addresses included. They are also allowed. All other
	// addresses that stay closed to Opened stay closed to them.
	Private []Host
	// Opened returns further hosts that may be reached from a namespace although their addresses are not public.
	// Some addresses stay closed to them: see Closed. It may be nil.
	Opened func(namespace string) []Host
	// Forbidden reports whether an address stays closed, public or not, and whatever Opened says, in addition to those of
	// Closed: the addresses of the API server, of nodes and of the manager itself. Private opens the loopback addresses among them.
	// It may be nil.
	Forbidden func(netip.AddrPort) bool
	// Cluster reports whether an address is one of the cluster's pods or Services. It counts as private then, although it
	// may look public: some clusters have global addresses of IPv6. It may be nil.
	Cluster func(netip.Addr) bool
}

// RefusedError says that a host may not be reached, and what to do.
type RefusedError struct {
	Message string
	// Final reports that no declaration of the namespace can open the address.
	Final bool
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

// Refused returns the message, for those who do not know this package.
func (e *RefusedError) Refused() string { return e.Message }

// Network makes connections under a policy. There is one for each process: connections are kept and shared by host.
// Connections to hosts that a namespace opens belong to that namespace, so that no other namespace uses them. mu guards
// opened.
type Network struct {
	policy Policy
	direct map[user]*http.Transport
	// proxied reaches models through the proxy that the manager's environment names. It does not check addresses: of a
	// connection it sees the proxy's only.
	proxied *http.Transport

	mu     sync.Mutex
	opened map[openedKey]*http.Transport
}

// openedKey is whose connections to opened hosts a transport keeps.
type openedKey struct {
	namespace string
	who       user
}

// user is who uses the network.
type user string

// The users, as errors call them.
const (
	tools     user = "tool"
	models    user = "model"
	webhooks  user = "webhook"
	providers user = "id provider"
)

// The flags of the manager that errors name.
const (
	FlagAllowed = "tool-allowed-hosts"
	FlagPrivate = "tool-private-hosts"
)

// New returns a network.
func New(p Policy) *Network {
	n := &Network{policy: p, direct: map[user]*http.Transport{}, opened: map[openedKey]*http.Transport{}}
	for _, who := range []user{tools, models, webhooks, providers} {
		n.direct[who] = newTransport(who, n.dialFor(who))
	}
	n.proxied = newTransport(models, (&net.Dialer{Timeout: dialTime, KeepAlive: keepAlive}).DialContext)
	n.proxied.Proxy = http.ProxyFromEnvironment
	return n
}

const (
	dialTime  = 10 * time.Second
	keepAlive = 30 * time.Second
)

func newTransport(who user, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	t := &http.Transport{
		// No proxy: otherwise the proxy's address would be checked instead of the host's.
		DialContext:            dial,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if who == models { // many threads call few endpoints
		t.MaxIdleConnsPerHost = 256
	}
	return t
}

// Close closes idle connections.
func (n *Network) Close() {
	for _, t := range n.direct {
		t.CloseIdleConnections()
	}
	n.proxied.CloseIdleConnections()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.opened {
		t.CloseIdleConnections()
	}
}

// check returns an error when a URL may not be requested. Addresses are checked when a connection is made.
func (n *Network) check(u *url.URL, who user) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &RefusedError{Message: fmt.Sprintf("the scheme %q cannot be used: give a URL with https:// or http://", u.Scheme)}
	case u.Hostname() == "":
		return &RefusedError{Message: "the URL has no host"}
	case u.User != nil:
		return &RefusedError{Message: "the URL has a user in it: " + withoutUser(who)}
	case who == models || len(n.policy.Allowed) == 0 || Match(n.policy.Allowed, u) || Match(n.policy.Private, u):
		return nil
	}
	return &RefusedError{Message: fmt.Sprintf("the host %s is not one that %ss may reach: the manager's --%s names those", u.Hostname(), who, FlagAllowed)}
}

// withoutUser says what to do instead of writing a user and a password into a URL.
func withoutUser(who user) string {
	switch who {
	case webhooks:
		return "leave it out, since deliveries are signed"
	case providers:
		return "use token"
	}
	return "use auth"
}

// dialFor returns a function that connects to a host. It checks the IP address that it dials, not the name, so a name that
// resolves to different addresses over time gains nothing.
func (n *Network) dialFor(who user) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		private := match(n.policy.Private, host, port)
		d := net.Dialer{Timeout: dialTime, KeepAlive: keepAlive, Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			switch {
			case err != nil:
				return notPublic(host, who)
			case private && n.closedToFlag(at), !private && n.forbidden(at):
				return closedError(host, who)
			case !private && !n.public(at.Addr()):
				return notPublic(host, who)
			}
			return nil
		}}
		return d.DialContext(ctx, network, address)
	}
}

// public reports whether an address is public and not one of the cluster.
func (n *Network) public(ip netip.Addr) bool {
	return Public(ip) && (n.policy.Cluster == nil || !n.policy.Cluster(ip.Unmap().WithZone("")))
}

func (n *Network) forbidden(at netip.AddrPort) bool {
	return n.policy.Forbidden != nil && n.policy.Forbidden(netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
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
