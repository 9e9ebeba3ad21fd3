package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl skein check", Label("K8S-13"), func() {
	It("finds nothing wrong with an installation, and with a cluster for one", func(ctx SpecContext) {
		// Objects of other specs may not be ready, which is no error of the installation.
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Plugin(ctx, "check")
			g.Expect(err).NotTo(HaveOccurred(), out)
			for _, check := range []string{"Kubernetes", "definitions", "manager", "versions", "leader", "runtime API", "certificates", "policies"} {
				g.Expect(out).To(MatchRegexp(`(?m)^ok    %s: `, check), out)
			}
		}).Should(Succeed())
		out, err := cluster.Plugin(ctx, "check", "--pre")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(MatchRegexp(`(?m)^ok    nodes: `))
		out, err = cluster.Plugin(ctx, "version")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(MatchRegexp(`(?m)^Manager: skein\.dev/manager:dev$`))
	})
})
