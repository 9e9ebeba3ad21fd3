//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox/pki"
)

var _ = Describe("the pool of children", func() {
	start := func() *Server {
		GinkgoHelper()
		o := Defaults()
		o.CertDir = GinkgoT().TempDir()
		ca, err := pki.NewCA(clock.RealClock{}, "test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		pair, err := pki.IssueServer(clock.RealClock{}, ca, "sandbox.test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		for name, content := range map[string][]byte{certFile: pair.Cert, keyFile: pair.Key, caFile: ca.Cert} {
			Expect(os.WriteFile(filepath.Join(o.CertDir, name), content, 0o600)).To(Succeed())
		}
		exe, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		o.Child = []string{exe, ChildArg}
		s, err := New(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.close)
		return s
	}

	It("leaves the processors to the first run of a sandbox, while children are left", func(ctx SpecContext) {
		s := start()
		Eventually(ctx, s.pool.renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
		take := func() {
			GinkgoHelper()
			child, err := s.pool.take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
		}
		Expect(s.pin("t")).To(BeTrue())
		s.pool.calmFor(time.Hour)
		take()
		s.pool.wanted()
		Expect(s.pool.refill).To(BeEmpty(), "another one is left")
		take()
		s.pool.wanted()
		Eventually(ctx, s.pool.full).WithTimeout(2*time.Minute).Should(BeTrue(), "none was left")
	}, SpecTimeout(5*time.Minute))

	It("renews those that started before the libraries were compiled", func(ctx SpecContext) {
		s := start()
		Eventually(ctx, s.pool.renewed).WithTimeout(2 * time.Minute).Should(BeClosed())
		for range s.opts.Prefork {
			child, err := s.pool.take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.libraries).To(BeTrue(), "it would compile the libraries for itself")
		}
	}, SpecTimeout(5*time.Minute))
})
