package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("Sandboxes with users of their own", Label("COD-08"), func() {
	It("run the same code under users that the node does not have, or the pool says that the node cannot set them up", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) { s.HostUsers = ptr.To(false) })
		said := ""
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			ready := meta.FindStatusCondition(p.Status.Conditions, skeinv1.ConditionReady)
			if said = ""; ready != nil && ready.Reason == skeinv1.ReasonPodsFailing {
				said = ready.Message
			}
			g.Expect(p.Status.Warm == 1 || said != "").To(BeTrue())
		}).WithTimeout(5 * time.Minute).Should(Succeed()) // a pod fails when it has been starting for two minutes
		if said != "" { // within some virtual machines and containers, a user namespace may not mount /proc
			AddReportEntry("this node gives pods no users of their own", said)
			Expect(said).To(ContainSubstring("its node cannot set it up"))
			return
		}
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		serves(ctx, t)
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", supervisorProcess(podOf(ctx, ns, "thread"))))
		Expect(err).NotTo(HaveOccurred())
		users := strings.Fields(string(raw)) // the first user within, the same on the node, how many
		Expect(users).To(HaveLen(3))
		Expect(users[0]).To(Equal("0"))
		Expect(users[1]).NotTo(Equal("0"), "root of the pod is not root of the node")
	}, SpecTimeout(6*time.Minute))
})
