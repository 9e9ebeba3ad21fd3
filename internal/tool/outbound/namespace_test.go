package outbound_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/tool/outbound"
)

// opening returns a network on which each namespace opens the hosts that are listed for it.
func opening(opened map[string]string, forbidden ...string) *outbound.Network {
	n := outbound.New(outbound.Policy{
		Opened: func(namespace string) []outbound.Host {
			hosts, _ := outbound.ParseAnnotation(opened[namespace])
			return hosts
		},
		Forbidden: func(at netip.AddrPort) bool {
			for _, f := range forbidden {
				if at == netip.MustParseAddrPort(f) {
					return true
				}
			}
			return false
		},
	})
	DeferCleanup(n.Close)
	return n
}

// private returns a listener at an address of this machine that is neither public nor loopback; nil when there is none.
func private() net.Listener {
	GinkgoHelper()
	addresses, err := net.InterfaceAddrs()
	Expect(err).NotTo(HaveOccurred())
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || outbound.Public(p.Addr()) || outbound.Closed(p.Addr()) {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.Addr().String(), "0"))
		Expect(err).NotTo(HaveOccurred())
		return l
	}
	return nil
}

var _ = Describe("Hosts that a namespace opens", Label("TOL-02"), func() {
	verdict := func(n *outbound.Network, namespace, address string) string {
		GinkgoHelper()
		u, err := url.Parse(address)
		Expect(err).NotTo(HaveOccurred())
		err = n.For(namespace).Judge(context.Background(), u)
		var refused *outbound.RefusedError
		switch {
		case err == nil:
			return "fine"
		case errors.As(err, &refused) && refused.Final:
			return "closed"
		case errors.As(err, &refused):
			Expect(refused.Message).To(And(ContainSubstring(outbound.AnnotationPrivateHosts), ContainSubstring("--tool-private-hosts")))
			return "not allowed"
		}
		return err.Error()
	}

	DescribeTable("are refused in words about those who would reach them", func(scope func(*outbound.Network, string) *outbound.Scope, who string, others ...string) {
		for address, policy := range map[string]outbound.Policy{
			"https://10.1.2.3": {}, "https://127.0.0.1": {}, "http://x.shop.svc": {}, "https://8.8.8.8": {Allowed: must(outbound.ParseHosts([]string{"a.test"}))},
		} {
			if who == "model" && policy.Allowed != nil {
				continue // models may reach what is public
			}
			err := scope(outbound.New(policy), "shop").Judge(context.Background(), must(url.Parse(address)))
			Expect(err).To(HaveOccurred(), address)
			text := strings.NewReplacer("tool-private-hosts", "", "tool-allowed-hosts", "").Replace(err.Error())
			Expect(text).To(ContainSubstring(who), address)
			for _, other := range others {
				Expect(text).NotTo(ContainSubstring(other), address)
			}
		}
	},
		Entry("tools", (*outbound.Network).For, "tool", "model", "webhook", "id provider"),
		Entry("models", (*outbound.Network).ForModels, "model", "tool", "webhook", "id provider"),
		Entry("webhooks", (*outbound.Network).ForWebhooks, "webhook", "tool", "model", "id provider"),
		Entry("id providers", (*outbound.Network).ForIDProviders, "id provider", "tool", "model", "webhook"),
	)

	DescribeTable("are checked before anything is sent", func(opened, address, want string) {
		Expect(verdict(opening(map[string]string{"shop": opened}, "10.96.0.1:443"), "shop", address)).To(Equal(want))
	},
		Entry("a public address", "", "https://8.8.8.8/x", "fine"),
		Entry("a Service", "", "http://tools.shop.svc:8080/mcp", "not allowed"),
		Entry("a Service by its long name", "", "http://tools.shop.svc.cluster.local./mcp", "not allowed"),
		Entry("a private address", "", "http://10.1.2.3", "not allowed"),
		Entry("a private address of IPv6", "", "http://[fd00::7]:8080", "not allowed"),
		Entry("an opened Service", "*.shop.svc", "http://tools.shop.svc:8080/mcp", "fine"),
		Entry("a Service opened on another port", "tools.shop.svc:9", "http://tools.shop.svc:8080/mcp", "not allowed"),
		Entry("an opened address", "10.1.2.3:8080, x.test", "http://10.1.2.3:8080", "fine"),
		Entry("an opened address of IPv6", "[fd00::7]:8080", "http://[fd00::7]:8080", "fine"),
		Entry("the API server, though it is opened", "10.96.0.1", "https://10.96.0.1", "closed"),
		Entry("another port of that address", "10.96.0.1", "https://10.96.0.1:9443", "fine"),
		Entry("this machine", "localhost, 127.0.0.1", "http://localhost:8080", "closed"),
		Entry("its address", "127.0.0.1", "http://127.0.0.1:8080", "closed"),
		Entry("its address in IPv6", "[::1]", "http://[::1]:8080", "closed"),
		Entry("the metadata address of most clouds", "169.254.169.254", "http://169.254.169.254/latest", "closed"),
		Entry("the metadata address of other clouds", "100.100.100.200", "http://100.100.100.200/latest", "closed"),
		Entry("the metadata address when it is not opened", "", "http://169.254.169.254/latest", "closed"),
		Entry("the metadata address of AWS in IPv6", "[fd00:ec2::254]", "http://[fd00:ec2::254]/latest", "closed"),
		Entry("the metadata address through NAT64", "[64:ff9b::a9fe:a9fe]", "http://[64:ff9b::a9fe:a9fe]/latest", "closed"),
		Entry("a host that does not resolve", "", "http://nobody.invalid", "fine"),
	)

	It("apply to that namespace only", func() {
		n := opening(map[string]string{"shop": "10.1.2.3"})
		Expect(verdict(n, "shop", "http://10.1.2.3")).To(Equal("fine"))
		Expect(verdict(n, "other", "http://10.1.2.3")).To(Equal("not allowed"))
	})

	It("cannot be this machine, under any name", func() {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { Fail("it was asked") }))
		DeferCleanup(server.Close)
		port := server.URL[strings.LastIndex(server.URL, ":"):]
		n := opening(map[string]string{"team": "localhost, 127.0.0.1, 0.0.0.0"})
		for _, host := range []string{"localhost", "127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"} {
			said, err := get(n, "http://"+host+port)
			Expect(err).To(HaveOccurred(), host)
			Expect(said).To(ContainSubstring("no tool may reach"), host)
		}
	})

	It("are reached by that namespace, and by no other through a shared connection", func() {
		l := private()
		if l == nil { // nothing can listen, so only check that the policy does not refuse it
			_, err := get(opening(map[string]string{"team": "10.0.0.1"}), "http://10.0.0.1:9")
			Expect(errors.As(err, new(*outbound.RefusedError))).To(BeFalse())
			return
		}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}}
		server.Start()
		DeferCleanup(server.Close)
		opened := map[string]string{"team": l.Addr().String()}
		n := opening(opened)
		Expect(get(n, server.URL)).To(Equal("200 OK"))
		said, err := getAs(n, "other", server.URL)
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring(outbound.AnnotationPrivateHosts))
		Expect(get(n, server.URL)).To(Equal("200 OK"))
		delete(opened, "team")
		_, err = get(n, server.URL)
		Expect(err).To(HaveOccurred(), "it was closed again")
		_, err = get(opening(map[string]string{"team": l.Addr().String()}, l.Addr().String()), server.URL)
		Expect(err).To(MatchError(ContainSubstring("no tool may reach")), "it is the API server's or the manager's")
	})

	It("add to those that the manager's flag allows", func() {
		allowed, err := outbound.ParseHosts([]string{"api.example.com"})
		Expect(err).NotTo(HaveOccurred())
		n := outbound.New(outbound.Policy{Allowed: allowed, Opened: func(string) []outbound.Host {
			hosts, _ := outbound.ParseAnnotation("tools.shop.svc")
			return hosts
		}})
		for address, refused := range map[string]bool{"https://tools.shop.svc/x": false, "https://example.org": true, "ftp://tools.shop.svc": true, "https://u:p@tools.shop.svc": true} {
			u, err := url.Parse(address)
			Expect(err).NotTo(HaveOccurred())
			Expect(n.For("a").Check(u) != nil).To(Equal(refused), address)
		}
	})

	It("are parsed from a text, in which one mistake does not affect the others", func() {
		hosts, err := outbound.ParseAnnotation(" a.svc:80,\n*.b.svc  https://c ")
		Expect(hosts).To(HaveLen(2))
		Expect(err).To(MatchError(ContainSubstring("https://c")))
	})

	It("apply to models, whose allowed hosts are any", Label("AGT-06"), func() {
		n := outbound.New(outbound.Policy{
			Allowed: must(outbound.ParseHosts([]string{"tools.example.com"})),
			Opened:  func(string) []outbound.Host { return must(outbound.ParseHosts([]string{"10.1.2.3", "127.0.0.1"})) },
			Cluster: func(ip netip.Addr) bool { return netip.MustParsePrefix("2600:1f00::/40").Contains(ip) },
			Forbidden: func(at netip.AddrPort) bool {
				return at == netip.MustParseAddrPort("203.1.0.1:6443") || at.Addr() == netip.MustParseAddr("198.51.200.7")
			},
		})
		DeferCleanup(n.Close)
		for address, want := range map[string]string{
			"https://8.8.8.8/v1":             "",
			"http://10.1.2.3/v1":             "",
			"http://10.9.9.9/v1":             "is not public, so models cannot reach it",
			"http://127.0.0.1/v1":            "no model may reach",
			"http://169.254.169.254/latest":  "no model may reach",
			"https://203.1.0.1:6443/api":     "no model may reach",
			"https://198.51.200.7/x":         "no model may reach",
			"http://[2600:1f00::7]:8080/v1":  "is not public, so models cannot reach it",
			"http://[2600:1f10::7]:8080/v1":  "",
			"http://model.team.svc:8080/v1":  "is not public, so models cannot reach it",
			"http://localhost:11434/v1":      "no model may reach",
			"ftp://8.8.8.8/v1":               "cannot be used",
			"http://user:secret@8.8.8.8/v1/": "a user in it",
		} {
			u, err := url.Parse(address)
			Expect(err).NotTo(HaveOccurred())
			err = n.ForModels("team").Judge(context.Background(), u)
			if want == "" {
				Expect(err).NotTo(HaveOccurred(), address)
				continue
			}
			Expect(err).To(MatchError(ContainSubstring(want)), address)
			req, err := http.NewRequest(http.MethodGet, address, nil)
			Expect(err).NotTo(HaveOccurred())
			if strings.HasSuffix(u.Hostname(), ".svc") {
				continue // no such name here
			}
			_, err = n.ForModels("team").RoundTrip(req)
			Expect(errors.As(err, new(*outbound.RefusedError))).To(BeTrue(), "%s is refused when it is dialled too: %v", address, err)
		}
	})
})

func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}
