//go:build linux && (amd64 || arm64)

package client_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("Asking a sandbox whether it idles", Label("COD-09"), func() {
	It("is an error when it is gone, and not the answer that something runs", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		c := s.Dial(GinkgoT(), "thread")
		Expect(c.Connect(ctx)).To(Succeed())
		Expect(c.Idle(ctx)).Error().NotTo(HaveOccurred())
		Expect(s.Stop()).To(Succeed())
		Eventually(ctx, func() error { // it may take a moment until the end of its connection is noticed
			_, err := c.Idle(ctx)
			Expect(err).To(HaveOccurred())
			return err
		}).WithTimeout(patience).Should(MatchError(ContainSubstring("connection refused")))
	}, NodeTimeout(2*patience))
})
