package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/sandbox/pki"
)

func TestPKI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox certificates")
}

var _ = Describe("certificates", Label("COD-08"), func() {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	name := pki.ServerName("default", "team-a")

	issue := func() (ca, server, client pki.Pair) {
		GinkgoHelper()
		var err error
		ca, err = pki.NewCA(clock, "ca", 24*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		server, err = pki.IssueServer(clock, ca, name, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		client, err = pki.IssueClient(clock, ca, "manager", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		return ca, server, client
	}
	// handshake connects the two and returns the error of each side.
	handshake := func(serverCA []byte, server pki.Pair, clientCA []byte, client pki.Pair, name string) (error, error) {
		GinkgoHelper()
		sc, err := pki.ServerConfig(serverCA, server)
		Expect(err).NotTo(HaveOccurred())
		cc, err := pki.ClientConfig(clientCA, client, name)
		Expect(err).NotTo(HaveOccurred())
		l, err := tls.Listen("tcp", "127.0.0.1:0", sc)
		Expect(err).NotTo(HaveOccurred())
		defer l.Close()
		served := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, err = c.Write([]byte("x"))
				_ = c.Close()
			}
			served <- err
		}()
		c, dialled := tls.Dial("tcp", l.Addr().String(), cc)
		if dialled == nil {
			_, dialled = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		return <-served, dialled
	}

	It("let the two of a pool talk", func() {
		ca, server, client := issue()
		s, c := handshake(ca.Cert, server, ca.Cert, client, name)
		Expect(s).NotTo(HaveOccurred())
		Expect(c).NotTo(HaveOccurred())
	})

	It("are refused for another CA, namespace, pool or use", func() {
		ca, server, client := issue()
		other, otherServer, otherClient := issue()
		_, c := handshake(ca.Cert, otherServer, ca.Cert, client, name)
		Expect(c).To(BeAssignableToTypeOf(&tls.CertificateVerificationError{}))
		s, _ := handshake(ca.Cert, server, ca.Cert, otherClient, name)
		Expect(s).To(HaveOccurred())
		_, c = handshake(ca.Cert, server, ca.Cert, client, pki.ServerName("default", "team-b"))
		Expect(c).To(MatchError(ContainSubstring("not sandbox.default.team-b.skein.dev")))
		s, _ = handshake(ca.Cert, server, ca.Cert, server, name)
		Expect(s).To(MatchError(ContainSubstring("incompatible key usage")))
		_, c = handshake(ca.Cert, client, ca.Cert, client, name)
		Expect(c).To(HaveOccurred())
		_ = other
	})

	It("say when they are due", func() {
		ca, server, _ := issue()
		Expect(pki.Check(clock, ca.Cert, server, 30*time.Minute)).To(Succeed())
		Expect(pki.Check(clock, ca.Cert, server, 2*time.Hour)).To(MatchError(pki.ErrExpired))
		other, _, _ := issue()
		Expect(pki.Check(clock, other.Cert, server, time.Minute)).To(BeAssignableToTypeOf(x509.UnknownAuthorityError{}))
		Expect(pki.Check(clock, ca.Cert, pki.Pair{Cert: server.Cert, Key: other.Key}, 0)).To(MatchError(ContainSubstring("does not match")))
		Expect(pki.Check(clock, []byte("x"), server, 0)).To(MatchError(ContainSubstring("no CA certificate")))
	})

	It("cannot be issued by an invalid CA", func() {
		_, err := pki.IssueServer(clock, pki.Pair{Cert: []byte("x"), Key: []byte("y")}, name, time.Hour)
		Expect(err).To(MatchError(ContainSubstring("the CA is not usable")))
	})
})
