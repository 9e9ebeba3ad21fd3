package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// AnnotationPrivateHosts is the annotation of a Namespace with the hosts that tools and models of the namespace may reach
// although their addresses are not public, separated by commas or spaces.
const AnnotationPrivateHosts = "skein.dev/tool-private-hosts"

// ParseAnnotation parses the hosts of the annotation. It leaves out invalid ones, and returns the first error.
func ParseAnnotation(text string) (list []Host, err error) {
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
		h, failed := ParseHost(item)
		if failed != nil {
			if err == nil {
				err = failed
			}
			continue
		}
		list = append(list, h)
	}
	return list, err
}

// Scope is the network of one namespace for tools, models, webhooks or id providers.
type Scope struct {
	network   *Network
	namespace string
	who       user
}

// For returns the network for the tools of a namespace.
func (n *Network) For(namespace string) *Scope { return &Scope{n, namespace, tools} }

// ForModels returns the network for the models of a namespace.
func (n *Network) ForModels(namespace string) *Scope { return &Scope{n, namespace, models} }

// ForWebhooks returns the network for the webhooks of a namespace. What holds for tools holds for them.
func (n *Network) ForWebhooks(namespace string) *Scope { return &Scope{n, namespace, webhooks} }

// ForIDProviders returns the network for the services that know whose conversation a request to a gateway of the namespace means. What
// holds for tools holds for them.
func (n *Network) ForIDProviders(namespace string) *Scope { return &Scope{n, namespace, providers} }

// Check returns an error when a URL may not be requested. Addresses are checked when a connection is made.
func (s *Scope) Check(u *url.URL) error {
	err := s.network.check(u, s.who)
	if err != nil && u.User == nil && (u.Scheme == "http" || u.Scheme == "https") && s.opens(u) {
		return nil
	}
	return err
}

// opens reports whether the namespace opens the host of a URL and the manager's own policy does not.
func (s *Scope) opens(u *url.URL) bool {
	p := &s.network.policy
	return p.Opened != nil && !Match(p.Private, u) && Match(p.Opened(s.namespace), u)
}

// RoundTrip implements http.RoundTripper. It follows no redirects, and its errors contain no URL.
func (s *Scope) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := s.Check(req.URL); err != nil {
		return nil, err
	}
	switch {
	case s.opens(req.URL):
		return s.network.openedTransport(openedKey{s.namespace, s.who}).RoundTrip(req)
	case s.who != models:
		return s.network.direct[s.who].RoundTrip(req)
	}
	if proxy, err := http.ProxyFromEnvironment(req); err == nil && proxy != nil {
		if err := s.Judge(req.Context(), req.URL); err != nil {
			return nil, err
		}
		return s.network.proxied.RoundTrip(req)
	}
	return s.network.direct[models].RoundTrip(req)
}

// openedTransport returns the transport for the hosts that a namespace opens. It is used only for those hosts.
func (n *Network) openedTransport(k openedKey) *http.Transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.opened[k]
	if t == nil {
		t = newTransport(k.who, n.dialOpened(k.who))
		n.opened[k] = t
	}
	return t
}

func (n *Network) dialOpened(who user) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d := net.Dialer{Timeout: dialTime, KeepAlive: keepAlive, Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || n.closed(at) {
				return closedError(host, who)
			}
			return nil
		}}
		return d.DialContext(ctx, network, address)
	}
}

// closed reports whether an address stays closed whatever a namespace declares.
func (n *Network) closed(at netip.AddrPort) bool { return Closed(at.Addr()) || n.forbidden(at) }

// closedToFlag reports whether an address stays closed to the hosts of the manager's own flag. Loopback addresses are open to them, since the
// flag is for servers on the developer's machine.
func (n *Network) closedToFlag(at netip.AddrPort) bool {
	return n.closed(at) && !at.Addr().Unmap().IsLoopback()
}

func closedError(host string, who user) error {
	return &RefusedError{Final: true, Message: fmt.Sprintf("the host %s has an address that no %s may reach: a loopback or link-local address, "+
		"a cloud's metadata service, a node, the API server or the manager itself", host, who)}
}

func notPublic(host string, who user) error {
	return &RefusedError{Message: fmt.Sprintf("the host %s has an address that is not public, so %ss cannot reach it: if those of this namespace should, "+
		"name it in the annotation %s of the Namespace; the manager's --%s opens a host to all namespaces", host, who, AnnotationPrivateHosts, FlagPrivate)}
}

// clusterNames are the suffixes of the names of Services and pods, whose addresses are never public.
var clusterNames = []string{".svc", ".cluster.local"}

// lookupTime limits a DNS lookup of Judge.
const lookupTime = 3 * time.Second

// Judge reports in advance whether a URL's host will be refused, as far as that is known now. Its addresses may change
// until a connection is made and are checked again then. A host that cannot be looked up is not refused.
func (s *Scope) Judge(ctx context.Context, u *url.URL) error {
	if err := s.Check(u); err != nil {
		return err
	}
	host := canonical(u.Hostname())
	private, opened := Match(s.network.policy.Private, u), s.opens(u)
	if !private && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return closedError(host, s.who)
	}
	if !private && !opened {
		for _, suffix := range clusterNames {
			if strings.HasSuffix(host, suffix) {
				return notPublic(host, s.who)
			}
		}
	}
	var addresses []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		addresses = []netip.Addr{ip}
	} else {
		ctx, cancel := context.WithTimeout(ctx, lookupTime)
		defer cancel()
		// The lookup does not distinguish a wrong kind of address from a missing one. Either may exist later.
		addresses, _ = net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	}
	var port uint16
	_, _ = fmt.Sscan(Port(u), &port) // the URL was parsed with a valid port
	var refused error
	for _, ip := range addresses {
		err := s.judge(host, netip.AddrPortFrom(ip, port), private, opened)
		if err == nil {
			return nil // the dialer tries each address
		}
		refused = err
	}
	return refused
}

func (s *Scope) judge(host string, at netip.AddrPort, private, opened bool) error {
	switch {
	case private && s.network.closedToFlag(at), !private && s.network.closed(at):
		return closedError(host, s.who)
	case !private && !opened && !s.network.public(at.Addr()):
		return notPublic(host, s.who)
	}
	return nil
}
