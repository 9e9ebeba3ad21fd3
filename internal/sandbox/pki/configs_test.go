package pki_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox/pki"
)

var _ = Describe("Configurations of clients", Label("COD-08"), func() {
	var (
		configs pki.ClientConfigs
		ca      pki.Pair
	)
	client := func() pki.Pair {
		GinkgoHelper()
		p, err := pki.IssueClient(clock.RealClock{}, ca, "manager", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		return p
	}
	authority := func() pki.Pair {
		GinkgoHelper()
		p, err := pki.NewCA(clock.RealClock{}, "ca", 24*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		return p
	}
	// same reports whether two certificates for the same purpose were parsed only once, and equal what would be
	// parsed now.
	same := func(a, b []byte, p, q pki.Pair) bool {
		GinkgoHelper()
		first, err := configs.Get(a, p, "one")
		Expect(err).NotTo(HaveOccurred())
		second, err := configs.Get(b, q, "two")
		Expect(err).NotTo(HaveOccurred())
		Expect(first.ServerName).To(Equal("one"))
		fresh, err := pki.ClientConfig(b, q, "two")
		Expect(err).NotTo(HaveOccurred())
		Expect(second.ServerName).To(Equal("two"))
		Expect(second.Certificates[0].Certificate).To(Equal(fresh.Certificates[0].Certificate))
		Expect(second.RootCAs.Equal(fresh.RootCAs)).To(BeTrue())
		Expect(second.MinVersion).To(Equal(fresh.MinVersion))
		return first.RootCAs == second.RootCAs
	}
	BeforeEach(func() {
		configs = pki.ClientConfigs{}
		ca = authority()
	})

	It("are read once for all servers while nothing changes", func() {
		p := client()
		Expect(same(ca.Cert, ca.Cert, p, p)).To(BeTrue())
	})

	It("are read again when what is trusted changes", func() {
		p := client()
		Expect(same(ca.Cert, append(append([]byte(nil), ca.Cert...), authority().Cert...), p, p)).To(BeFalse())
	})

	It("are read again when the certificate changes, also in place", func() {
		p := client()
		Expect(same(ca.Cert, ca.Cert, p, client())).To(BeFalse())
		trusted := append([]byte(nil), ca.Cert...)
		_, err := configs.Get(trusted, p, "one")
		Expect(err).NotTo(HaveOccurred())
		trusted[0] = 'x'
		_, err = configs.Get(trusted, p, "one")
		Expect(err).To(HaveOccurred())
	})

	It("are copied for each caller", func() {
		p := client()
		first, err := configs.Get(ca.Cert, p, "one")
		Expect(err).NotTo(HaveOccurred())
		first.NextProtos = []string{"h2"}
		second, err := configs.Get(ca.Cert, p, "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(second.NextProtos).To(BeEmpty())
	})

	It("are refused each time when they are wrong", func() {
		for range 2 {
			_, err := configs.Get(ca.Cert, pki.Pair{Cert: ca.Cert, Key: client().Key}, "one")
			Expect(err).To(HaveOccurred())
		}
	})
})
