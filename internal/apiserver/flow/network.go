package flow

import "net/netip"

// Network returns what counts as one address: of IPv6 a /64, which one client has to itself.
func Network(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // without an address all share one
	return p
}
