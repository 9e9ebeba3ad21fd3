package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/tool/outbound"
)

var _ = Describe("Hosts that the manager's flag opens to all namespaces", Label("TOL-02"), func() {
	// named is a network whose flag names a host. An API server has every port of 127.0.0.1, as in development, and of 10.96.0.1; 10.8.0.4 is a
	// node.
	named := func(host string) *outbound.Network {
		n := outbound.New(outbound.Policy{
			Private: must(outbound.ParseHosts([]string{host})),
			Forbidden: func(at netip.AddrPort) bool {
				return at.Addr().IsLoopback() || at.Addr() == netip.MustParseAddr("10.96.0.1") || at.Addr() == netip.MustParseAddr("10.8.0.4")
			},
		})
		DeferCleanup(n.Close)
		return n
	}
	scopes := map[string]func(*outbound.Network, string) *outbound.Scope{
		"tool": (*outbound.Network).For, "model": (*outbound.Network).ForModels, "webhook": (*outbound.Network).ForWebhooks, "id provider": (*outbound.Network).ForIDProviders,
	}

	DescribeTable("cannot be what no namespace can open, but for loopback addresses", func(host string) {
		for who, scope := range scopes {
			u := must(url.Parse("http://" + host))
			final := And(HaveField("Final", true), HaveField("Message", ContainSubstring("no "+who+" may reach")))
			var refused *outbound.RefusedError
			Expect(errors.As(scope(named(host), "team").Judge(context.Background(), u), &refused)).To(BeTrue(), who)
			Expect(refused).To(final)
			req := must(http.NewRequest(http.MethodGet, u.String(), nil))
			_, err := scope(named(host), "team").RoundTrip(req)
			Expect(errors.As(err, &refused)).To(BeTrue(), "%s: it is refused when it is dialled too: %v", who, err)
			Expect(refused).To(final)
		}
	},
		Entry("a link-local address", "169.254.7.7"), Entry("the metadata address of most clouds", "169.254.169.254"), Entry("that of other clouds", "100.100.100.200"),
		Entry("that of AWS in IPv6", "[fd00:ec2::254]"), Entry("a link-local address of IPv6", "[fe80::1]"), Entry("an address that stands for this machine", "0.0.0.0"),
		Entry("a node", "10.8.0.4"), Entry("an API server", "10.96.0.1"), Entry("the metadata address through NAT64", "[64:ff9b::a9fe:a9fe]"),
	)

	It("may be private, and may be loopback", func() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
		DeferCleanup(server.Close)
		port := server.URL[strings.LastIndex(server.URL, ":"):]
		for _, host := range []string{"localhost", "127.0.0.1"} {
			n := named(host)
			Expect(n.For("team").Judge(context.Background(), must(url.Parse("http://"+host+port)))).To(Succeed())
			Expect(get(n, "http://"+host+port)).To(Equal("200 OK"))
		}
		for _, host := range []string{"10.1.2.3", "[fd00::7]"} {
			Expect(named(host).For("team").Judge(context.Background(), must(url.Parse("http://"+host)))).To(Succeed())
		}
	})
})
