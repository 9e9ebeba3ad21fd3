package outbound_test

import (
	"net/netip"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	netv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/skein-dev/skein/internal/tool/outbound"
)

// managerPolicy is the NetworkPolicy of the manager as it is installed.
func managerPolicy() netv1.NetworkPolicy {
	GinkgoHelper()
	data, err := os.ReadFile("../../../config/network/manager.yaml")
	Expect(err).NotTo(HaveOccurred())
	var p netv1.NetworkPolicy
	Expect(yaml.UnmarshalStrict(data, &p)).To(Succeed())
	return p
}

// reaches reports whether a policy lets a pod connect to an address outside of the cluster.
func reaches(p netv1.NetworkPolicy, to netip.Addr, port int) bool {
	GinkgoHelper()
	for _, rule := range p.Spec.Egress {
		onPort := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			Expect(p.EndPort).To(BeNil(), "this test knows single ports")
			onPort = onPort || p.Port == nil || p.Port.IntValue() == port
		}
		peer := len(rule.To) == 0
		for _, t := range rule.To {
			peer = peer || t.IPBlock != nil && within(t.IPBlock, to)
		}
		if onPort && peer {
			return true
		}
	}
	return false
}

func within(b *netv1.IPBlock, ip netip.Addr) bool {
	GinkgoHelper()
	has := func(cidr string) bool { return must(netip.ParsePrefix(cidr)).Contains(ip) }
	if !has(b.CIDR) {
		return false
	}
	for _, e := range b.Except {
		if has(e) {
			return false
		}
	}
	return true
}

var _ = Describe("The manager's NetworkPolicy", Label("TOL-02"), func() {
	DescribeTable("closes link-local addresses and clouds' metadata services on all ports but those of DNS and of API servers", func(address string) {
		ip := netip.MustParseAddr(address)
		Expect(outbound.Closed(ip)).To(BeTrue(), "the manager itself closes it to tools and models")
		policy := managerPolicy()
		var open []int
		for port := 1; port <= 65535; port++ {
			if reaches(policy, ip, port) {
				open = append(open, port)
			}
		}
		Expect(open).To(Equal([]int{53, 6443}))
	},
		Entry("most clouds", "169.254.169.254"), Entry("containers of AWS", "169.254.170.2"), Entry("Azure", "168.63.129.16"),
		Entry("Alibaba Cloud", "100.100.100.200"), Entry("Oracle Cloud", "192.0.0.192"), Entry("this machine", "127.0.0.1"),
		Entry("AWS in IPv6", "fd00:ec2::254"), Entry("Google Cloud in IPv6", "fd20:ce::254"), Entry("Oracle Cloud in IPv6", "fd00:c1::a9fe:a9fe"),
		Entry("a link-local address of IPv6", "fe80::1"), Entry("this machine in IPv6", "::1"),
	)
	DescribeTable("lets the manager reach everything else", func(address string) {
		for _, port := range []int{53, 80, 443, 5432, 6443, 8443} {
			Expect(reaches(managerPolicy(), netip.MustParseAddr(address), port)).To(BeTrue(), "port %d", port)
		}
	}, Entry(nil, "8.8.8.8"), Entry(nil, "10.96.0.1"), Entry(nil, "192.168.1.1"), Entry(nil, "2606:4700::1111"), Entry(nil, "fd00::7"))
})
