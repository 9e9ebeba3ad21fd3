package netpol

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Table is the name of the nftables table in the node's network namespace.
const Table = "devcluster-policy"

// sets collects named sets of addresses. Equal sets are shared.
type sets struct{ byName map[string]string }

func (s *sets) name(ips []netip.Addr) string {
	body := addresses(ips)
	name := "p_" + hash(body)
	s.byName[name] = body
	return name
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}

func addresses(ips []netip.Addr) string {
	ips = slices.Clone(ips)
	slices.SortFunc(ips, netip.Addr.Compare)
	var out []string
	for _, ip := range slices.Compact(ips) {
		out = append(out, ip.String())
	}
	return strings.Join(out, ", ")
}

// Render returns the nft script that replaces the table with one for s.
//
// Every packet of a connection is judged in both directions, by the connection's client and server. So rules need no
// exception for established connections, and a connection that becomes forbidden stops. The chains are:
//   - forward, for what passes through the node: pod to pod, pod to the world and back, the API server to pods;
//   - input, for what pods send to the node itself. Answers to connections of the node are accepted: the node may
//     always talk to its pods, because probes depend on it. For the same reason it has no output chain.
//
// A pod may always talk to itself. Pods with the same rules share a chain.
func Render(s State) string {
	ss := &sets{byName: map[string]string{}}
	chains := map[string][]string{}
	verdicts := map[string][]string{} // maps a direction to the elements of its map
	var known []netip.Addr
	var self []string
	pods := slices.Clone(s.Pods)
	slices.SortFunc(pods, func(a, b Pod) int { return a.IP.Compare(b.IP) })
	for _, p := range pods {
		known = append(known, p.IP)
		selected := false
		for name, d := range map[string]direction{"ingress": ingress, "egress": egress} {
			rules, yes := s.isolated(p, d, ss)
			if !yes {
				continue
			}
			selected = true
			chain := "c_" + hash(strings.Join(rules, "\n"))
			chains[chain] = rules
			verdicts[name] = append(verdicts[name], fmt.Sprintf("%s : jump %s", p.IP, chain))
		}
		if selected {
			self = append(self, fmt.Sprintf("%[1]s . %[1]s", p.IP))
		}
	}

	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("add table inet %s", Table)
	line("delete table inet %s", Table)
	line("table inet %s {", Table)
	set := func(kind, name, typ, elements string) {
		if elements != "" {
			elements = " elements = { " + elements + " };"
		}
		line("  %s %s { type %s;%s }", kind, name, typ, elements)
	}
	set("set", "known", "ipv4_addr", addresses(known))
	set("set", "self", "ipv4_addr . ipv4_addr", strings.Join(self, ", "))
	for _, name := range slices.Sorted(maps.Keys(ss.byName)) {
		set("set", name, "ipv4_addr", ss.byName[name])
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		line("  chain %s {", name)
		for _, r := range chains[name] {
			line("    %s", r)
		}
		line("    counter drop")
		line("  }")
	}
	for _, name := range []string{"ingress", "egress"} {
		set("map", name, "ipv4_addr : verdict", strings.Join(verdicts[name], ", "))
	}
	line("  chain forward {")
	line("    type filter hook forward priority filter; policy accept;")
	line("    ct state invalid counter drop")
	line("    ct state related accept") // errors about a connection, such as fragmentation needed
	line("    ct original ip saddr . ct reply ip saddr @self accept")
	line("    ct original ip saddr %s ct original ip saddr != @known counter drop", s.PodCIDR)
	line("    ct reply ip saddr %s ct reply ip saddr != @known counter drop", s.PodCIDR)
	line("    ct original ip saddr vmap @egress")
	line("    ct reply ip saddr vmap @ingress")
	line("  }")
	line("  chain input {")
	line("    type filter hook input priority filter; policy accept;")
	line("    ct direction reply accept")
	line("    ct state related accept")
	line("    ct original ip saddr %s ct original ip saddr != @known counter drop", s.PodCIDR)
	line("    ct original ip saddr vmap @egress")
	line("  }")
	line("}")
	return b.String()
}
