package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certutil "k8s.io/client-go/util/cert"
)

var _ = Describe("A listener with a certificate", Label("IDS-03"), func() {
	It("speaks HTTPS with the certificate that the files have now, and makes cookies secure", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		// put replaces the files and returns an authority for what is in them.
		put := func() *x509.CertPool {
			cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(certFile, cert, 0o600)).To(Succeed())
			Expect(os.WriteFile(keyFile, key, 0o600)).To(Succeed())
			pool := x509.NewCertPool()
			Expect(pool.AppendCertsFromPEM(cert)).To(BeTrue())
			return pool
		}
		_, _, err := Certificate(certFile, keyFile)
		Expect(err).To(HaveOccurred(), "there are no files")
		first := put()
		s := serverOf(nil)
		config, watcher, err := Certificate(certFile, keyFile)
		Expect(err).NotTo(HaveOccurred())
		s.opts.TLS = config
		go func() { _ = watcher.Start(ctx) }()
		address := listening(ctx, s)
		_, port, _ := strings.Cut(address, ":")
		fetch := func(pool *x509.CertPool) (*http.Response, error) {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
			resp, err := c.Get("https://localhost:" + port + "/ns/chat/v1/messages")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			return resp, err
		}
		resp, err := fetch(first)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.StatusCode).To(Equal(200))
		Expect(resp.ProtoMajor).To(Equal(2))
		Expect(resp.Header.Get("Set-Cookie")).To(ContainSubstring("; Secure"))

		plain, err := http.Get("http://" + address + "/ns/chat/v1/messages")
		Expect(err).NotTo(HaveOccurred())
		_ = plain.Body.Close()
		Expect(plain.StatusCode).To(Equal(400))

		second := put()
		Eventually(func() error {
			_, err := fetch(second)
			return err
		}, "30s").Should(Succeed())
		_, err = fetch(first)
		Expect(err).To(HaveOccurred())

		Expect(os.WriteFile(certFile, []byte("no certificate"), 0o600)).To(Succeed())
		Expect(watcher.ReadCertificate()).NotTo(Succeed())
		_, err = fetch(second)
		Expect(err).NotTo(HaveOccurred(), "the last certificate that can be used stays")
	})

	It("keeps failed handshakes out of the log, and nothing else", func() {
		var lines []string
		l := serverLog(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		l.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
		l.Print("http: panic serving 192.0.2.1:1")
		Expect(lines).To(HaveLen(1))
		Expect(fmt.Sprint(lines)).To(ContainSubstring("panic serving"))
	})
})
