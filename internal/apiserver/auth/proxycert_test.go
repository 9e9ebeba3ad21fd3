package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	testingclock "k8s.io/utils/clock/testing"
)

// counted is an authority that counts how often it is asked.
type counted struct {
	dynamiccertificates.CAContentProvider
	asked int
}

func (c *counted) VerifyOptions() (x509.VerifyOptions, bool) {
	c.asked++
	return c.CAContentProvider.VerifyOptions()
}

var _ = Describe("The certificate of the front proxy", Label("K8S-04"), func() {
	var ca *counted
	var proxy *x509.Certificate
	var names headerrequest.StaticStringSlice
	var now *testingclock.FakePassiveClock
	var a *proxyAuthenticator

	BeforeEach(func() {
		bundle, cert := authorityAndClient("front-proxy")
		content, err := dynamiccertificates.NewStaticCAContent("test", []byte(bundle))
		Expect(err).NotTo(HaveOccurred())
		ca, proxy, names = &counted{CAContentProvider: content}, cert, headerrequest.StaticStringSlice{"front-proxy"}
		now = testingclock.NewFakePassiveClock(time.Now())
		a = newProxyAuthenticator(&authenticatorfactory.RequestHeaderConfig{
			CAContentProvider: ca, UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: headerrequest.StaticStringSlice{},
			GroupHeaders: headerrequest.StaticStringSlice{"X-Remote-Group"}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
			AllowedClientNames: headerrequest.StringSliceProviderFunc(func() []string { return names }),
		}, now)
	})

	// who returns the name of the user of a request that comes with certs and names user, or "" for one that is refused.
	who := func(ctx SpecContext, user string, certs ...*x509.Certificate) string {
		GinkgoHelper()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil)
		r.Header.Set("X-Remote-User", user)
		r.TLS = &tls.ConnectionState{PeerCertificates: certs}
		resp, ok, err := a.AuthenticateRequest(r)
		if err != nil || !ok {
			return ""
		}
		Expect(r.Header).NotTo(HaveKey("X-Remote-User"), "no other filter believes it")
		return resp.User.GetName()
	}

	It("is verified once in ten seconds", func(ctx SpecContext) {
		for _, user := range []string{"ada", "bob", "ada"} {
			Expect(who(ctx, user, proxy)).To(Equal(user), "who is asked for differs from request to request")
		}
		Expect(ca.asked).To(Equal(1))
		now.SetTime(now.Now().Add(answerTTL + time.Millisecond))
		names = headerrequest.StaticStringSlice{"another"}
		Expect(who(ctx, "ada", proxy)).To(BeEmpty(), "the cluster trusts it no more")
		Expect(ca.asked).To(Equal(2))
	})

	It("says nothing about other ones", func(ctx SpecContext) {
		_, foreign := authorityAndClient("front-proxy")
		Expect(who(ctx, "ada", proxy)).To(Equal("ada"))
		for range 2 {
			Expect(who(ctx, "ada", foreign)).To(BeEmpty(), "of another authority")
			Expect(who(ctx, "ada", foreign, proxy)).To(BeEmpty(), "of another authority, with the proxy's as one in between")
			Expect(who(ctx, "ada")).To(BeEmpty(), "none")
		}
		Expect(ca.asked).To(Equal(5), "what was refused is verified each time")
	})

	It("is not valid for longer than it says", func(ctx SpecContext) {
		now.SetTime(proxy.NotAfter.Add(-time.Second))
		Expect(who(ctx, "ada", proxy)).To(Equal("ada"))
		now.SetTime(proxy.NotAfter.Add(time.Millisecond))
		Expect(who(ctx, "ada", proxy)).To(Equal("ada"), "the time of the verifier is the real one, by which it is valid")
		Expect(ca.asked).To(Equal(2), "and it was verified again")
	})
})
