package outbound_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/tool/outbound"
)

func TestOutbound(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Outbound")
}

func network(allowed, private string) *outbound.Network {
	GinkgoHelper()
	parse := func(text string) []outbound.Host {
		list, err := outbound.ParseHosts(strings.Fields(text))
		Expect(err).NotTo(HaveOccurred())
		return list
	}
	n := outbound.New(outbound.Policy{Allowed: parse(allowed), Private: parse(private)})
	DeferCleanup(n.Close)
	return n
}

func get(n *outbound.Network, url string) (string, error) {
	GinkgoHelper()
	return getAs(n, "team", url)
}

func getAs(n *outbound.Network, namespace, url string) (string, error) {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := n.For(namespace).RoundTrip(req)
	if err != nil {
		return outbound.Explain(err, req.URL.Hostname()), err
	}
	return resp.Status, resp.Body.Close()
}

var _ = Describe("Addresses", Label("TOL-02"), func() {
	DescribeTable("that are not public", func(address string) {
		Expect(outbound.Public(netip.MustParseAddr(address))).To(BeFalse())
	},
		Entry(nil, "127.0.0.1"), Entry(nil, "127.9.9.9"), Entry(nil, "0.0.0.0"), Entry(nil, "0.1.2.3"), Entry(nil, "10.0.0.1"), Entry(nil, "172.16.0.1"), Entry(nil, "172.31.255.255"),
		Entry(nil, "192.168.1.1"), Entry(nil, "169.254.169.254"), Entry(nil, "100.64.0.1"), Entry(nil, "100.100.100.200"), Entry(nil, "192.0.0.192"), Entry(nil, "198.18.0.1"),
		Entry(nil, "224.0.0.1"), Entry(nil, "239.255.255.255"), Entry(nil, "240.0.0.1"), Entry(nil, "255.255.255.255"), Entry(nil, "203.0.113.9"),
		Entry(nil, "168.63.129.16"), Entry(nil, "::ffff:168.63.129.16"), Entry(nil, "64:ff9b::a83f:8110"), Entry(nil, "::ffff:0:7f00:1"), Entry(nil, "::ffff:0:a9fe:a9fe"), Entry(nil, "4000::1"), Entry(nil, "e000::1"),
		Entry(nil, "::"), Entry(nil, "::1"), Entry(nil, "::7f00:1"), Entry(nil, "::ffff:127.0.0.1"), Entry(nil, "::ffff:10.0.0.1"), Entry(nil, "fe80::1"), Entry(nil, "fe80::1%eth0"),
		Entry(nil, "fc00::1"), Entry(nil, "fd00:ec2::254"), Entry(nil, "fec0::1"), Entry(nil, "ff02::1"), Entry(nil, "64:ff9b::7f00:1"), Entry(nil, "64:ff9b::a9fe:a9fe"),
		Entry(nil, "64:ff9b:1::1"), Entry(nil, "2002:7f00:1::"), Entry(nil, "2002:a00:1::1"), Entry(nil, "2001::1"), Entry(nil, "2001:db8::1"),
	)
	DescribeTable("that are public", func(address string) {
		Expect(outbound.Public(netip.MustParseAddr(address))).To(BeTrue())
	}, Entry(nil, "8.8.8.8"), Entry(nil, "172.15.0.1"), Entry(nil, "100.63.255.255"), Entry(nil, "2606:4700::1111"), Entry(nil, "::ffff:8.8.8.8"), Entry(nil, "64:ff9b::808:808"))
})

var _ = Describe("Hosts", Label("TOL-02"), func() {
	DescribeTable("fit patterns", func(pattern, asked string, fits bool) {
		h, err := outbound.ParseHost(pattern)
		Expect(err).NotTo(HaveOccurred())
		u, err := url.Parse(asked)
		Expect(err).NotTo(HaveOccurred())
		Expect(outbound.Match([]outbound.Host{h}, u)).To(Equal(fits))
	},
		Entry(nil, "api.example.com", "https://api.example.com/x", true),
		Entry(nil, "API.example.com.", "https://api.EXAMPLE.com:8443", true),
		Entry(nil, "api.example.com", "https://api.example.com./x", true),
		Entry(nil, "api.example.com", "https://api.example.com.evil.test", false),
		Entry(nil, "api.example.com", "https://x.api.example.com", false),
		Entry(nil, "*.example.com", "https://a.b.example.com", true),
		Entry(nil, "*.example.com", "https://example.com", false),
		Entry(nil, "*.example.com", "https://badexample.com", false),
		Entry(nil, "api.example.com:8443", "https://api.example.com:8443", true),
		Entry(nil, "api.example.com:8443", "https://api.example.com", false),
		Entry(nil, "api.example.com:443", "https://api.example.com", true),
		Entry(nil, "127.0.0.1", "http://127.0.0.1:9", true),
		Entry(nil, "[::1]:80", "http://[::1]/", true),
		Entry(nil, "127.0.0.1", "http://[::ffff:127.0.0.1]/", true),
	)
	DescribeTable("are refused when they are invalid", func(pattern string) {
		_, err := outbound.ParseHost(pattern)
		Expect(err).To(MatchError(ContainSubstring(pattern)))
	}, Entry(nil, ""), Entry(nil, "https://x"), Entry(nil, "*"), Entry(nil, "a.*.b"), Entry(nil, "x:99999"), Entry(nil, "a b"))
})

var _ = Describe("A network", Label("TOL-02"), func() {
	var server *httptest.Server
	asked := 0
	BeforeEach(func() {
		asked = 0
		server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
		DeferCleanup(server.Close)
	})
	port := func() string { return server.URL[strings.LastIndex(server.URL, ":"):] }

	It("reaches no private address under any name", func() {
		n := network("", "")
		for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "0x7f.1", "2130706433"} {
			said, err := get(n, "http://"+host+port())
			Expect(err).To(HaveOccurred(), host)
			Expect(said).NotTo(ContainSubstring("http://"), host)
		}
		said, _ := get(n, "http://localhost"+port())
		Expect(said).To(And(ContainSubstring("localhost"), ContainSubstring("--tool-private-hosts"), Not(ContainSubstring("127.0.0.1"))))
		Expect(asked).To(BeZero())
	})

	It("reaches private hosts that the manager's flag names, by that name only", func() {
		n := network("", "localhost")
		Expect(get(n, "http://localhost"+port())).To(Equal("200 OK"))
		_, err := get(n, "http://127.0.0.1"+port())
		Expect(err).To(HaveOccurred())
		_, err = get(network("", "localhost:1"), "http://localhost"+port())
		Expect(err).To(HaveOccurred(), "another port")
		Expect(asked).To(Equal(1))
	})

	It("reaches only the allowed hosts where some are set", func() {
		n := network("*.example.com", "localhost")
		said, err := get(n, "http://example.org/")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("example.org"), ContainSubstring("--tool-allowed-hosts")))
		Expect(get(n, "http://localhost"+port())).To(Equal("200 OK"))
	})

	It("refuses URLs that are not HTTP or that have a user", func() {
		n := network("", "localhost")
		for _, u := range []string{"ftp://localhost", "http://user:secret@localhost", "http:///x"} {
			said, err := get(n, u)
			Expect(err).To(HaveOccurred())
			Expect(said).NotTo(ContainSubstring("secret"))
		}
	})
})
