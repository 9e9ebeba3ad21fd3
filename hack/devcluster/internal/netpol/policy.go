// Package netpol enforces NetworkPolicies on a node whose pods have separate routed links.
//
// It renders one nftables table from pods, namespaces and policies, and replaces it in one transaction ([Render]).
// Packets are judged by their connection, in both directions, so that a new policy also cuts existing connections
// that it forbids; see [Render]. Addresses in the pods' range are dropped until their pod is known, so that a new pod
// is never outside the policies that select it.
package netpol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pod is what policies need to know about a pod that does not use the host's network.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	IP              netip.Addr
	Ports           []corev1.ContainerPort
}

// State is everything that determines the rules.
type State struct {
	// PodCIDR is the range of all pods' addresses.
	PodCIDR netip.Prefix
	Pods    []Pod
	// Namespaces holds the labels of each namespace.
	Namespaces map[string]map[string]string
	Policies   []*netv1.NetworkPolicy
}

// direction is one of the two sides from which a policy sees a connection.
type direction struct {
	kind netv1.PolicyType
	// peer matches the other side's address.
	peer string
}

// The client of a connection is the source of its original direction. Its server is the source of its reply
// direction, which has the pod's address and port even if the client used a Service's.
var (
	ingress = direction{netv1.PolicyTypeIngress, "ct original ip saddr"}
	egress  = direction{netv1.PolicyTypeEgress, "ct reply ip saddr"}
)

// isolated reports whether any policy selects the pod in a direction, and renders what those policies allow: nftables
// rules that return. Everything else must be dropped.
func (s State) isolated(p Pod, d direction, sets *sets) (rules []string, yes bool) {
	for _, np := range s.Policies {
		if np.Namespace != p.Namespace || !slices.Contains(np.Spec.PolicyTypes, d.kind) || !matches(&np.Spec.PodSelector, p.Labels) {
			continue
		}
		yes = true
		if d.kind == netv1.PolicyTypeIngress {
			for _, r := range np.Spec.Ingress {
				rules = append(rules, s.allow(np.Namespace, d, r.From, r.Ports, &p, sets)...)
			}
			continue
		}
		for _, r := range np.Spec.Egress {
			rules = append(rules, s.allow(np.Namespace, d, r.To, r.Ports, nil, sets)...)
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), yes
}

// allow renders one rule of a policy. target is the pod that defines named ports; nil means that the peers define
// them.
func (s State) allow(ns string, d direction, peers []netv1.NetworkPolicyPeer, ports []netv1.NetworkPolicyPort, target *Pod, sets *sets) []string {
	var rules []string
	if len(ports) == 0 {
		ports = []netv1.NetworkPolicyPort{{}}
	}
	for _, port := range ports {
		if port.Port != nil && port.Port.StrVal != "" {
			rules = append(rules, s.allowNamed(ns, d, peers, port, target, sets)...)
			continue
		}
		m := portMatch(port)
		for _, from := range s.peerMatches(ns, d, peers, sets) {
			rules = append(rules, from+m+"return")
		}
	}
	return rules
}

// allowNamed renders a rule for a named port. Each serving pod defines the number.
func (s State) allowNamed(ns string, d direction, peers []netv1.NetworkPolicyPeer, port netv1.NetworkPolicyPort, target *Pod, sets *sets) []string {
	var rules []string
	if target != nil {
		for _, n := range namedPorts(*target, port) {
			for _, from := range s.peerMatches(ns, d, peers, sets) {
				rules = append(rules, from+numberMatch(protocol(port), fmt.Sprint(n))+"return")
			}
		}
		return rules
	}
	byNumber := map[int32][]netip.Addr{}
	for _, p := range s.Pods {
		if len(peers) == 0 || slices.ContainsFunc(peers, func(peer netv1.NetworkPolicyPeer) bool { return s.selects(ns, peer, p) }) {
			for _, n := range namedPorts(p, port) {
				byNumber[n] = append(byNumber[n], p.IP)
			}
		}
	}
	for n, ips := range byNumber {
		rules = append(rules, d.peer+" @"+sets.name(ips)+" "+numberMatch(protocol(port), fmt.Sprint(n))+"return")
	}
	return rules
}

// peerMatches renders a match for each peer of a rule. "" matches all peers.
func (s State) peerMatches(ns string, d direction, peers []netv1.NetworkPolicyPeer, sets *sets) []string {
	if len(peers) == 0 {
		return []string{""}
	}
	var out []string
	for _, peer := range peers {
		if b := peer.IPBlock; b != nil {
			cidr, err := netip.ParsePrefix(b.CIDR)
			if err != nil || !cidr.Addr().Is4() {
				continue // the node has no IPv6
			}
			m := d.peer + " " + cidr.Masked().String() + " "
			for _, e := range b.Except {
				if x, err := netip.ParsePrefix(e); err == nil && x.Addr().Is4() {
					m += d.peer + " != " + x.Masked().String() + " "
				}
			}
			out = append(out, m)
			continue
		}
		var ips []netip.Addr
		for _, p := range s.Pods {
			if s.selects(ns, peer, p) {
				ips = append(ips, p.IP)
			}
		}
		if len(ips) > 0 {
			out = append(out, d.peer+" @"+sets.name(ips)+" ")
		}
	}
	return out
}

// selects reports whether a peer of a policy in namespace ns selects pod p.
func (s State) selects(ns string, peer netv1.NetworkPolicyPeer, p Pod) bool {
	switch {
	case peer.IPBlock != nil:
		return false
	case peer.NamespaceSelector == nil:
		if p.Namespace != ns {
			return false
		}
	default:
		l, ok := s.Namespaces[p.Namespace]
		if !ok || !matches(peer.NamespaceSelector, l) {
			return false
		}
	}
	return peer.PodSelector == nil || matches(peer.PodSelector, p.Labels)
}

func matches(s *metav1.LabelSelector, l map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(l))
}

func protocol(p netv1.NetworkPolicyPort) string {
	if p.Protocol == nil {
		return "tcp"
	}
	return strings.ToLower(string(*p.Protocol))
}

// portMatch renders a numeric port, a range, a whole protocol, or "" for everything.
func portMatch(p netv1.NetworkPolicyPort) string {
	switch {
	case p.Port == nil && p.Protocol == nil:
		return ""
	case p.Port == nil:
		return "meta l4proto " + protocol(p) + " "
	case p.EndPort != nil:
		return numberMatch(protocol(p), fmt.Sprintf("%d-%d", p.Port.IntVal, *p.EndPort))
	default:
		return numberMatch(protocol(p), fmt.Sprint(p.Port.IntVal))
	}
}

func numberMatch(protocol, number string) string {
	return "meta l4proto " + protocol + " ct reply proto-src " + number + " "
}

// namedPorts returns the port numbers of a pod for a named port.
func namedPorts(p Pod, port netv1.NetworkPolicyPort) []int32 {
	var out []int32
	for _, c := range p.Ports {
		proto := string(c.Protocol)
		if proto == "" {
			proto = string(corev1.ProtocolTCP)
		}
		if c.Name == port.Port.StrVal && strings.EqualFold(proto, protocol(port)) {
			out = append(out, c.ContainerPort)
		}
	}
	return out
}
