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
	It("renews those that started before the libraries were compiled", func(ctx SpecContext) {
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
		Eventually(s.pool.renewed).WithTimeout(20 * time.Second).Should(BeClosed())
		for range o.Prefork {
			child, err := s.pool.take(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(child.dispose)
			Expect(child.libraries).To(BeTrue(), "it would compile the libraries for itself")
		}
	}, SpecTimeout(time.Minute))
})
