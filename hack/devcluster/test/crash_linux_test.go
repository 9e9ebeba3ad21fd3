package test

import (
	"os"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/node"
)

func itoa(n int) string { return strconv.Itoa(n) }

func stateOf(c cluster) layout.State {
	GinkgoHelper()
	s, err := layout.Dir(c.dir).ReadState()
	Expect(err).NotTo(HaveOccurred())
	return s
}

var _ = Describe("A crash", func() {
	var c cluster
	var before host
	var pidNS string

	BeforeEach(func() {
		needNode()
		c = newCluster("crash")
		before = look(c)
		c.must("up", append(c.flags(), "--egress")...)
		pidNS = nodePIDNamespace(c)
		c.must("load", "--dir="+c.dir, "--cluster="+c.name, "--name=dct/app:1", "--binary="+appBinary)
		c.apply(restricted("default", "web", `[serve, "8080"]`))
		c.get("wait", "--for=condition=Ready", "pod/web", "--timeout=240s")
		Expect(look(c).tables).NotTo(Equal(before.tables)) // egress has one on the host
	})

	gone := func() {
		GinkgoHelper()
		c.must("down", c.flags()...)
		expectSame(before, look(c))
		Eventually(func() []string { return processesOf(c, pidNS) }, patience).Should(BeEmpty())
		c.must("down", c.flags()...)
	}

	It("of the supervisor ends the node with it, and down removes the rest", func() {
		Expect(syscall.Kill(stateOf(c).SupervisorPID, syscall.SIGKILL)).To(Succeed())
		Eventually(func() []string { return processesOf(c, pidNS) }, patience).Should(BeEmpty())
		Expect(call("status", c.flags()...).code).To(Equal(1))
		gone()
	})

	It("of the node's first process stops the cluster, which says why", func() {
		Expect(syscall.Kill(stateOf(c).NodeInitPID, syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return call("status", c.flags()...).code }, patience).Should(Equal(1))
		Eventually(func() string { return stateOf(c).Failure }, patience).Should(ContainSubstring("the node ended"))
		gone()
	})

	It("of everything at once is cleaned up by the next up", func() {
		s := stateOf(c)
		Expect(syscall.Kill(s.NodeInitPID, syscall.SIGKILL)).To(Succeed())
		Expect(syscall.Kill(s.SupervisorPID, syscall.SIGKILL)).To(Succeed())
		Eventually(func() []string { return processesOf(c, pidNS) }, patience).Should(BeEmpty())
		Expect(c.must("up", c.flags()...)).To(ContainSubstring("is up after"))
		Expect(c.get("get", "pods", "-o", "name")).To(BeEmpty())
		gone()
	})

	It("of a daemon is repaired", func() {
		pidFile := c.dir + "/node/kubelet.pid"
		old, err := os.ReadFile(pidFile)
		Expect(err).NotTo(HaveOccurred())
		pid := node.PIDs(layout.Dir(c.dir), stateOf(c).NodeInitPID)["kubelet"]
		Expect(pid).NotTo(BeZero())
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		Eventually(func() string {
			b, _ := os.ReadFile(pidFile)
			return string(b)
		}, patience).ShouldNot(Or(BeEmpty(), Equal(string(old))))
		Eventually(func() int { return call("status", c.flags()...).code }, patience).Should(BeZero())
		gone()
	})
})
