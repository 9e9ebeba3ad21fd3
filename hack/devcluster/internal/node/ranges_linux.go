package node

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// Claim creates the cluster's link and fills in its address ranges. The defaults are in 100.64.0.0/10, which is for
// networks that are not routed further and which few machines use. Claim skips a range in which this host has an
// address or a route, so that several clusters can run side by side. The route to the pods decides between clusters
// that start at the same moment: the kernel accepts only one for a range.
func Claim(cfg *layout.Config) error {
	setDefaults(cfg)
	if !cfg.Node {
		return nil
	}
	used, err := usedRanges()
	if err != nil {
		return err
	}
	free := func(p netip.Prefix) error {
		for _, u := range append(used, cfg.ServiceCIDR) {
			if p.Overlaps(u) {
				return fmt.Errorf("the range %s overlaps with %s, which is in use on this host: name another", p, u)
			}
		}
		return nil
	}
	for _, p := range []netip.Prefix{cfg.PodCIDR, cfg.LinkCIDR} {
		if p.IsValid() {
			if err := free(p); err != nil {
				return err
			}
		}
	}
	host, err := makeLink(*cfg)
	if err != nil {
		return err
	}
	asked := *cfg
	for i := range 256 {
		if !asked.PodCIDR.IsValid() {
			cfg.PodCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 96, byte(i), 0}), 24)
		}
		if !asked.LinkCIDR.IsValid() {
			cfg.LinkCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 95, byte(i), 0}), 30)
		}
		if free(cfg.PodCIDR) != nil || free(cfg.LinkCIDR) != nil || cfg.PodCIDR.Overlaps(cfg.LinkCIDR) {
			continue
		}
		err := addressLink(host, *cfg)
		if !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	return errors.New("no free address range for the node: name some with --pod-cidr (a /24 or larger) and --link-cidr (a /30)")
}

// usedRanges returns the ranges in which the host has addresses or routes, except default routes.
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
