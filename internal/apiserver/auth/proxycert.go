package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"net/http"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	certrequest "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/clock"
)

// maxProxyCertificates bounds how many certificates are remembered. Each replica of the API server has one, and a new one when it is renewed.
const maxProxyCertificates = 100

// proxyAuthenticator takes the user of a request from the headers of the front proxy, which is the API server. Its client certificate must be
// valid, as headerrequest.NewDynamicVerifyOptionsSecure requires.
//
// All requests of an API server come with one certificate, and verifying it was a tenth of what the manager spends on a run of code.
// So a certificate that was valid is not verified again for answerTTL, as the API server's answers about tokens and rights are not asked for again.
// A certificate that has been refused is verified each time.
type proxyAuthenticator struct {
	headers authenticator.Request // believes the headers
	verify  authenticator.Request // verifies the certificate, and then asks remember
	valid   *cache.LRUExpireCache // by the hash of the certificates that a client has sent
	clock   clock.PassiveClock
}

// newProxyAuthenticator returns an authenticator for the front proxy that c describes.
func newProxyAuthenticator(c *authenticatorfactory.RequestHeaderConfig, now clock.PassiveClock) *proxyAuthenticator {
	a := &proxyAuthenticator{
		headers: headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes),
		valid:   cache.NewLRUExpireCacheWithClock(maxProxyCertificates, now),
		clock:   now,
	}
	a.verify = certrequest.NewDynamicCAVerifier(c.CAContentProvider.VerifyOptions, authenticator.RequestFunc(a.remember), c.AllowedClientNames)
	return a
}

// AuthenticateRequest implements authenticator.Request.
func (a *proxyAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if _, valid := a.valid.Get(hashOf(r.TLS)); valid {
			return a.headers.AuthenticateRequest(r)
		}
	}
	return a.verify.AuthenticateRequest(r)
}

// remember notes that the certificate of a request is valid: for answerTTL, but not after one of the certificates expires.
func (a *proxyAuthenticator) remember(r *http.Request) (*authenticator.Response, bool, error) {
	d := answerTTL
	for _, c := range r.TLS.PeerCertificates {
		d = min(d, c.NotAfter.Sub(a.clock.Now()))
	}
	a.valid.Add(hashOf(r.TLS), struct{}{}, d)
	return a.headers.AuthenticateRequest(r)
}

// hashOf returns a hash of the certificates that a client has sent: its own and those in between.
func hashOf(s *tls.ConnectionState) (h [sha256.Size]byte) {
	all := sha256.New()
	for _, c := range s.PeerCertificates {
		all.Write(c.Raw) // DER says how long each one is (X.690, 8.1), so two lists never give the same bytes
	}
	all.Sum(h[:0])
	return h
}
