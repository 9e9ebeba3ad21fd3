package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

var _ = Describe("whom the API server lets us believe", Label("K8S-04"), func() {
	It("is known with the first request, however late what follows the ConfigMap is", func(ctx SpecContext) {
		proxyCA, proxyCert := authorityAndClient("front-proxy")
		userCA, userCert := authorityAndClient("ada")
		published := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: authConfigNamespace, Name: authConfigName},
			Data: map[string]string{
				"client-ca-file": userCA, "requestheader-client-ca-file": proxyCA, "requestheader-allowed-names": `["front-proxy"]`,
				"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
			},
		}
		kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/"+authConfigNamespace+"/configmaps/"+authConfigName {
				<-r.Context().Done() // lists and watches
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(published)
		}))
		DeferCleanup(func() {
			kube.CloseClientConnections()
			kube.Close()
		})
		clients, err := kubernetes.NewForConfig(&rest.Config{Host: kube.URL})
		Expect(err).NotTo(HaveOccurred())
		cfg := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
		cfg.SecureServing = &genericapiserver.SecureServingInfo{}
		Expect(delegateAuthentication(cfg, clients)).To(Succeed())

		asked, known := cfg.SecureServing.ClientCA.VerifyOptions()
		Expect(known).To(BeTrue(), "or else nobody is asked for a certificate")
		for _, cert := range []*x509.Certificate{proxyCert, userCert} {
			_, err := cert.Verify(asked)
			Expect(err).NotTo(HaveOccurred())
		}
		who := func(cert *x509.Certificate) string {
			GinkgoHelper()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil)
			r.Header.Set("X-Remote-User", "bob")
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
			resp, ok, err := cfg.Authentication.Authenticator.AuthenticateRequest(r)
			if err != nil {
				return "refused"
			}
			Expect(ok).To(BeTrue())
			Expect(resp.User.GetGroups()).To(ContainElement(user.AllAuthenticated))
			return resp.User.GetName()
		}
		Expect(who(proxyCert)).To(Equal("bob"), "whom the front proxy names")
		Expect(who(userCert)).To(Equal("ada"), "what anybody else names counts for nothing")
		_, foreign := authorityAndClient("front-proxy")
		Expect(who(foreign)).To(Equal("refused"), "a certificate of an authority that the API server does not name")

		published.Data["client-ca-file"] = "no certificate"
		Expect(delegateAuthentication(cfg, clients)).To(MatchError(And(ContainSubstring("client-ca-file"), Not(ContainSubstring("Role")))))
	})
})

// authorityAndClient returns a certificate for a client and, as PEM, the authority that signed it.
func authorityAndClient(name string) (authority string, cert *x509.Certificate) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "authority of " + name}, key)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	cert, err = x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})), cert
}
