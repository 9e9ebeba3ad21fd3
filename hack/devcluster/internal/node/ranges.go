package node

import "net/netip"

// defaultServices is the range of Service addresses.
var defaultServices = netip.MustParsePrefix("100.97.0.0/16")

// Ranges are the address ranges that the user asked for; a zero one is chosen.
type Ranges struct {
	Pods, Services, Link netip.Prefix
}
