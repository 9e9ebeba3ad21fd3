package flow

import "net/netip"

// Network returns the network whose addresses count as one client. It returns the /64 of an IPv6 address, because one client usually has all
// of it.
func Network(a netip.Addr) netip.Prefix {
	bits := 64
	if a = a.Unmap().WithZone(""); a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // requests without a valid address count as one client
	return p
}
