package node

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

// Link returns the name of the host's end of the link. An interface name has at most 15 bytes.
func Link(cfg layout.Config) string {
	h := fnv.New32a()
	h.Write([]byte(cfg.Name))
	return fmt.Sprintf("skdc-%08x", h.Sum32())
}

// nodeLink is the name of the node's end, inside the node.
const nodeLink = "eth0"

// peer returns the name of the node's end while it is on the host.
func peer(cfg layout.Config) string { return "skdn-" + strings.TrimPrefix(Link(cfg), "skdc-") }

// makeLink creates both ends on the host, and returns the host's.
func makeLink(cfg layout.Config) (netlink.Link, error) {
	if err := removeLink(cfg); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Link(cfg)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer(cfg)}); err != nil {
		return nil, fmt.Errorf("making the link %s: %w", attrs.Name, err)
	}
	host, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return nil, err
	}
	// No IPv6 on the link, because NetworkPolicies are enforced for IPv4. A kernel without IPv6 has nothing to switch
	// off.
	if err := setSysctl("net/ipv6/conf/"+attrs.Name+"/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return host, netlink.LinkSetUp(host)
}

// addressLink gives the host's end its address and routes the pods' range over it. When another cluster has the
// range, the error is EEXIST and nothing is changed.
func addressLink(host netlink.Link, cfg layout.Config) error {
	addr := netip.PrefixFrom(cfg.HostIP(), cfg.LinkCIDR.Bits())
	if err := addAddress(host, addr); err != nil {
		return err
	}
	if err := addRoute(host, cfg.PodCIDR, cfg.NodeIP()); err != nil {
		return errors.Join(fmt.Errorf("routing the pods' range %s: %w", cfg.PodCIDR, err),
			netlink.AddrDel(host, &netlink.Addr{IPNet: ipNet(addr)}))
	}
	return nil
}

// giveLink moves the node's end into the network namespace of pid.
func giveLink(cfg layout.Config, pid int) error {
	l, err := netlink.LinkByName(peer(cfg))
	if err != nil {
		return fmt.Errorf("the node's end of the link: %w", err)
	}
	if err := netlink.LinkSetNsPid(l, pid); err != nil {
		return fmt.Errorf("moving the link into the node: %w", err)
	}
	return nil
}

// removeLink returns when the host's end is gone. The kernel takes a moment after the node's namespace ended.
func removeLink(cfg layout.Config) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		l, err := netlink.LinkByName(Link(cfg))
		var none netlink.LinkNotFoundError
		if errors.As(err, &none) {
			return nil
		}
		if err == nil {
			err = netlink.LinkDel(l)
		}
		if time.Since(start) > 10*time.Second {
			return fmt.Errorf("the link %s cannot be removed: %w", Link(cfg), err)
		}
	}
}

// setUpInside configures the node's end and the settings of its network namespace.
func setUpInside(cfg layout.Config) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "1"},
		// A packet with another pod's address is dropped: the answer would not return to the sender's interface.
		{"net/ipv4/conf/all/rp_filter", "1"},
		{"net/ipv4/conf/default/rp_filter", "1"},
		{"net/ipv4/conf/all/send_redirects", "0"},
		{"net/ipv4/conf/default/send_redirects", "0"},
		{"net/ipv6/conf/all/disable_ipv6", "1"},
		{"net/ipv6/conf/default/disable_ipv6", "1"},
	} {
		if err := setSysctl(s[0], s[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	eth, err := netlink.LinkByName(peer(cfg))
	if err != nil {
		return fmt.Errorf("the node's end of the link: %w", err)
	}
	if err := netlink.LinkSetName(eth, nodeLink); err != nil {
		return err
	}
	if err := addAddress(eth, netip.PrefixFrom(cfg.NodeIP(), cfg.LinkCIDR.Bits())); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(eth); err != nil {
		return err
	}
	if cfg.Egress {
		return addRoute(eth, netip.PrefixFrom(netip.IPv4Unspecified(), 0), cfg.HostIP())
	}
	// Without a default route, connections to unknown addresses fail at once instead of timing out. The Services'
	// range needs a route for the node's own connections, because the route is looked up before kube-proxy translates
	// the address.
	return addRoute(eth, cfg.ServiceCIDR, cfg.HostIP())
}

func addAddress(l netlink.Link, p netip.Prefix) error {
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
		return fmt.Errorf("address %s on %s: %w", p, l.Attrs().Name, err)
	}
	return nil
}

func addRoute(l netlink.Link, to netip.Prefix, via netip.Addr) error {
	return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func setSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
}
