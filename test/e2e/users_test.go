package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("Sandboxes with users of their own", Label("COD-08"), func() {
	It("run the same code, and their users are nobody on the node", func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 1, func(s *skeinv1.SandboxPoolSpec) { s.HostUsers = ptr.To(false) })
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		serves(ctx, t)
		pod := podOf(ctx, ns, "thread")
		Expect(pod.Spec.HostUsers).To(HaveValue(BeFalse()))
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", supervisorProcess(pod)))
		Expect(err).NotTo(HaveOccurred())
		users := strings.Fields(string(raw)) // the first user within, the same on the node, how many
		Expect(users).To(HaveLen(3))
		Expect(users[0]).To(Equal("0"))
		Expect(users[1]).NotTo(Equal("0"), "root of the pod is not root of the node")
	}, SpecTimeout(6*time.Minute))
})
