package netpol

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func pod(ns, name, ip string, ports ...corev1.ContainerPort) Pod {
	return Pod{Namespace: ns, Name: name, IP: netip.MustParseAddr(ip), Labels: map[string]string{"app": name}, Ports: ports}
}

func policy(ns string, selects string, kinds ...netv1.PolicyType) *netv1.NetworkPolicy {
	return &netv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p-" + selects},
		Spec: netv1.NetworkPolicySpec{PodSelector: *app(selects), PolicyTypes: kinds}}
}

func app(name string) *metav1.LabelSelector {
	if name == "" {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func port(p intstr.IntOrString, end int32, proto corev1.Protocol) netv1.NetworkPolicyPort {
	out := netv1.NetworkPolicyPort{Port: &p, Protocol: &proto}
	if end > 0 {
		out.EndPort = &end
	}
	return out
}

var http = corev1.ContainerPort{Name: "http", ContainerPort: 8080}

func state(policies ...*netv1.NetworkPolicy) State {
	return State{
		PodCIDR: netip.MustParsePrefix("100.96.0.0/24"),
		Pods: []Pod{
			pod("a", "web", "100.96.0.10", http), pod("a", "db", "100.96.0.11", corev1.ContainerPort{Name: "http", ContainerPort: 5432}),
			pod("b", "client", "100.96.0.20"),
		},
		Namespaces: map[string]map[string]string{"a": {"team": "red"}, "b": {"team": "blue"}},
		Policies:   policies,
	}
}

func TestRender(t *testing.T) {
	ingressRule := func(np *netv1.NetworkPolicy, r netv1.NetworkPolicyIngressRule) *netv1.NetworkPolicy {
		np.Spec.Ingress = append(np.Spec.Ingress, r)
		return np
	}
	egressRule := func(np *netv1.NetworkPolicy, r netv1.NetworkPolicyEgressRule) *netv1.NetworkPolicy {
		np.Spec.Egress = append(np.Spec.Egress, r)
		return np
	}
	for _, tt := range []struct {
		name      string
		policy    *netv1.NetworkPolicy
		want, not []string
	}{
		{"default deny isolates every pod of the namespace and no other", policy("a", "", netv1.PolicyTypeIngress, netv1.PolicyTypeEgress),
			[]string{"100.96.0.10 : jump", "100.96.0.11 : jump", "counter drop"}, []string{"100.96.0.20 : jump", "return"}},
		{"a direction that is not named is left alone", policy("a", "web", netv1.PolicyTypeEgress),
			[]string{"map egress { type ipv4_addr : verdict; elements = { 100.96.0.10 : jump"}, []string{"map ingress { type ipv4_addr : verdict; elements"}},
		{"an empty rule allows everything", ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{}),
			[]string{"\n    return\n"}, nil},
		{"a pod selector means the policy's own namespace",
			ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{From: []netv1.NetworkPolicyPeer{{PodSelector: app("")}}}),
			[]string{"{ 100.96.0.10, 100.96.0.11 }"}, []string{"{ 100.96.0.10, 100.96.0.11, 100.96.0.20 }; }\n  chain"}},
		{"a namespace selector goes by the namespace's labels",
			ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{From: []netv1.NetworkPolicyPeer{
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}}}}}),
			[]string{"type ipv4_addr; elements = { 100.96.0.20 }"}, nil},
		{"both selectors must hold",
			ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{From: []netv1.NetworkPolicyPeer{
				{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: app("db")}}}),
			[]string{"type ipv4_addr; elements = { 100.96.0.11 }"}, nil},
		{"selectors that match no pod allow no pod",
			ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{From: []netv1.NetworkPolicyPeer{{PodSelector: app("none")}}}),
			[]string{"100.96.0.10 : jump"}, []string{"return"}},
		{"an address block with exceptions",
			egressRule(policy("a", "web", netv1.PolicyTypeEgress), netv1.NetworkPolicyEgressRule{To: []netv1.NetworkPolicyPeer{
				{IPBlock: &netv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.2.0.0/16"}}}}}),
			[]string{"ct reply ip saddr 10.0.0.0/8 ct reply ip saddr != 10.1.0.0/16 ct reply ip saddr != 10.2.0.0/16 return"}, nil},
		{"an IPv6 block allows nothing here",
			egressRule(policy("a", "web", netv1.PolicyTypeEgress), netv1.NetworkPolicyEgressRule{To: []netv1.NetworkPolicyPeer{{IPBlock: &netv1.IPBlock{CIDR: "fd00::/8"}}}}),
			nil, []string{"return"}},
		{"a port range", egressRule(policy("a", "web", netv1.PolicyTypeEgress), netv1.NetworkPolicyEgressRule{Ports: []netv1.NetworkPolicyPort{
			port(intstr.FromInt32(80), 90, corev1.ProtocolUDP)}}),
			[]string{"meta l4proto udp ct reply proto-src 80-90 return"}, nil},
		{"a named port of the selected pod", ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{Ports: []netv1.NetworkPolicyPort{
			port(intstr.FromString("http"), 0, corev1.ProtocolTCP)}}),
			[]string{"meta l4proto tcp ct reply proto-src 8080 return"}, []string{"5432"}},
		{"a named port of each destination", egressRule(policy("b", "client", netv1.PolicyTypeEgress), netv1.NetworkPolicyEgressRule{
			To:    []netv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
			Ports: []netv1.NetworkPolicyPort{port(intstr.FromString("http"), 0, corev1.ProtocolTCP)}}),
			[]string{"proto-src 8080 return", "proto-src 5432 return", "{ 100.96.0.10 }", "{ 100.96.0.11 }"}, nil},
		{"a named port that no pod has", ingressRule(policy("a", "web", netv1.PolicyTypeIngress), netv1.NetworkPolicyIngressRule{Ports: []netv1.NetworkPolicyPort{
			port(intstr.FromString("admin"), 0, corev1.ProtocolTCP)}}), nil, []string{"return"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := Render(state(tt.policy))
			for _, w := range tt.want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
			for _, n := range tt.not {
				if strings.Contains(out, n) {
					t.Errorf("unwanted %q in\n%s", n, out)
				}
			}
			check(t, out)
		})
	}
}

func TestRenderIsStable(t *testing.T) {
	s := state(policy("a", "", netv1.PolicyTypeIngress, netv1.PolicyTypeEgress))
	first := Render(s)
	for range 20 {
		s.Pods = append(s.Pods[1:], s.Pods[0])
		if got := Render(s); got != first {
			t.Fatalf("the same state gives\n%s\nand\n%s", first, got)
		}
	}
}

func TestPodsWithTheSameRulesShareAChain(t *testing.T) {
	out := Render(state(policy("a", "", netv1.PolicyTypeIngress, netv1.PolicyTypeEgress)))
	if n := strings.Count(out, "chain c_"); n != 1 {
		t.Errorf("%d chains instead of 1 in\n%s", n, out)
	}
}

// check lets nft itself parse the rules, if it is available.
func check(t *testing.T, rules string) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil || os.Geteuid() != 0 {
		t.Log("not root, or no nft: the rules are not parsed")
		return
	}
	cmd := exec.Command("nft", "-c", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("nft: %v: %s\n%s", err, out, rules)
	}
}
