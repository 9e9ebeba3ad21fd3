package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// forwarded is the header in which proxies say for whom they ask.
const forwarded = "X-Forwarded-For"

// remote returns the address of the other end of the connection, and whether it is a trusted proxy.
func (s *Server) remote(r *http.Request) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	a := at.Addr().Unmap().WithZone("")
	return a, s.isTrusted(a)
}

// isTrusted reports whether an address is that of a proxy whose headers count.
func (s *Server) isTrusted(a netip.Addr) bool {
	return slices.ContainsFunc(s.opts.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// address returns the address of the client: the last one in X-Forwarded-For that no trusted proxy has. What stands
// before it is the client's own word.
func (s *Server) address(r *http.Request) netip.Addr {
	a, proxy := s.remote(r)
	if !proxy {
		return a
	}
	hops := strings.Split(strings.Join(r.Header.Values(forwarded), ","), ",")
	for _, hop := range slices.Backward(hops) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			return a
		}
		if a = next.Unmap().WithZone(""); !s.isTrusted(a) {
			return a
		}
	}
	return a
}

// secure reports whether the client speaks https. Any client may say so, because it makes the cookie of that client stricter.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
