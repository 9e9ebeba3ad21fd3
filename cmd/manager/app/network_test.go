package app

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestAddressesOfTheAPIServerAndOfTheManager(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // it has gone since the manager began to start
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.5:6443"}]}`)
	}))
	defer server.Close()
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("SKEIN_RUNTIME_API_SERVICE_HOST", "10.96.7.7")
	t.Setenv("SOME_SERVICE_HOST", "no-address")

	own := newOwnAddresses(fake.NewClientBuilder().WithScheme(Scheme()).Build())
	g.Expect(own.find(t.Context(), logr.Discard(), &rest.Config{Host: server.URL})).To(Succeed())
	own.listeners(":8444", disabled, "nonsense")
	for address, has := range map[string]bool{
		"10.96.0.1:443": true, "10.96.0.1:80": true, "10.96.7.7:443": true, // Services
		"10.0.0.5:6443": true, "10.0.0.5:443": false, // the API server's own address: other ports of that machine do not count
		"127.0.0.1:1": true, "10.96.0.2:443": false,
	} {
		g.Expect(own.has(netip.MustParseAddrPort(address))).To(Equal(has), address)
	}
	addresses, err := net.InterfaceAddrs()
	g.Expect(err).NotTo(HaveOccurred())
	for _, a := range addresses {
		ip := netip.MustParsePrefix(a.String()).Addr()
		g.Expect(own.has(netip.AddrPortFrom(ip, 8444))).To(BeTrue(), "the runtime API at %s", ip)
	}
}
