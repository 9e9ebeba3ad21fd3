package node

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// ChooseRanges fills in a cluster's address ranges. The defaults are in 100.64.0.0/10, which is meant for networks that
// are not routed further and which few machines use. A range that this host has an address or a route in is passed over,
// so several clusters can run side by side. Services need no choice: their addresses exist in the node only.
func ChooseRanges(cfg *layout.Config, want Ranges) error {
	cfg.ServiceCIDR = want.Services
	if !cfg.ServiceCIDR.IsValid() {
		cfg.ServiceCIDR = defaultServices
	}
	used, err := usedRanges()
	if err != nil {
		return err
	}
	free := func(p netip.Prefix) error {
		for _, u := range append(used, cfg.ServiceCIDR) {
			if p.Overlaps(u) {
				return fmt.Errorf("the range %s overlaps with %s, which is in use on this host", p, u)
			}
		}
		return nil
	}
	for _, p := range []netip.Prefix{want.Pods, want.Link} {
		if p.IsValid() {
			if err := free(p); err != nil {
				return err
			}
		}
	}
	for i := range 256 {
		pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 96, byte(i), 0}), 24)
		link := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 95, byte(i), 0}), 30)
		if want.Pods.IsValid() {
			pods = want.Pods
		}
		if want.Link.IsValid() {
			link = want.Link
		}
		if free(pods) == nil && free(link) == nil && !pods.Overlaps(link) {
			cfg.PodCIDR, cfg.LinkCIDR = pods.Masked(), link.Masked()
			return nil
		}
	}
	return errors.New("no free address range for the node: name some with --pod-cidr (a /24 or larger) and --link-cidr (a /30)")
}

// usedRanges are those the host has addresses or routes in, default routes aside.
func usedRanges() ([]netip.Prefix, error) {
	var used []netip.Prefix
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.IPNet.String()); err == nil {
			used = append(used, p.Masked())
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing the host's routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if p, err := netip.ParsePrefix(r.Dst.String()); err == nil && p.Bits() > 0 {
			used = append(used, p.Masked())
		}
	}
	return used, nil
}
