package outbound

import "net/netip"

// special lists the blocks without public hosts, from IANA's registries of special-purpose addresses. It leaves out
// those that netip knows (loopback, private, link-local, multicast).
var special = func() (list []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8",        // this network
		"100.64.0.0/10",    // shared by carriers, and by some clouds for their metadata
		"168.63.129.16/32", // Azure's own, which serves each of its machines the machine's secrets
		"192.0.0.0/24",     // protocol assignments
		"192.0.2.0/24",     // documentation
		"192.88.99.0/24",   // relays of 6to4
		"198.18.0.0/15",    // benchmarks
		"198.51.100.0/24",  // documentation
		"203.0.113.0/24",   // documentation
		"240.0.0.0/4",      // reserved, and the broadcast address
		"2001::/23",        // protocol assignments, Teredo among them
		"2001:db8::/32",    // documentation
		"3fff::/20",        // documentation
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}()

// unicast is the only block of public IPv6 addresses. Outside of it are translated, site-local, discarded and
// unassigned addresses; new kinds are added there too.
var unicast = netip.MustParsePrefix("2000::/3")

// The blocks whose addresses contain an IPv4 address. Public and Closed know where.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// Public reports whether an address is on the internet, so that nothing of the cluster, of its nodes or of their cloud
// answers there.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return Public(netip.AddrFrom4([4]byte(b[12:16])))
	case sixTo4.Contains(ip):
		return Public(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return ip.Is4() || unicast.Contains(ip)
}

// metadata lists the addresses at which clouds serve secrets to machines, apart from link-local ones.
var metadata = func() map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, s := range []string{
		"168.63.129.16",      // Azure
		"100.100.100.200",    // Alibaba Cloud
		"192.0.0.192",        // Oracle Cloud, the older one
		"fd00:ec2::254",      // AWS
		"fd20:ce::254",       // Google Cloud
		"fd00:c1::a9fe:a9fe", // Oracle Cloud
	} {
		set[netip.MustParseAddr(s)] = true
	}
	return set
}()

// thisNetwork is the block that refers to the machine itself.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// Closed reports whether a namespace cannot open an address to its tools: addresses of the machine itself, of its link
// and of a cloud's metadata, and addresses that no server has. Addresses of Services, pods and private networks are not
// closed.
func Closed(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || metadata[ip] || thisNetwork.Contains(ip) {
		return true
	}
	if ip.Is4() {
		return false
	}
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return Closed(netip.AddrFrom4([4]byte(b[12:16])))
	case sixTo4.Contains(ip):
		return Closed(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return !ip.IsPrivate() && !unicast.Contains(ip)
}
