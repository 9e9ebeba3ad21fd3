package test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// elsewhere runs the test program in a network namespace that is linked to the host and has no route to the pods,
// like the rest of the world. It returns the program's address.
func elsewhere() string {
	GinkgoHelper()
	cmd := exec.Command(appBinary, "serve", "8080")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// Private to this test process, because others may run at the same time.
	name, net4 := fmt.Sprintf("skdc-t%d", os.Getpid()), fmt.Sprintf("198.51.100.%d", os.Getpid()%63*4)
	one := netip.MustParseAddr(net4).Next()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsPid(cmd.Process.Pid)}
	Expect(netlink.LinkAdd(veth)).To(Succeed())
	DeferCleanup(func() { _ = netlink.LinkDel(veth) })
	ns, err := netns.GetFromPid(cmd.Process.Pid)
	Expect(err).NotTo(HaveOccurred())
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	Expect(err).NotTo(HaveOccurred())
	defer inside.Close()
	set := func(h *netlink.Handle, name, addr string) {
		GinkgoHelper()
		l, err := h.LinkByName(name)
		Expect(err).NotTo(HaveOccurred())
		a, err := netlink.ParseAddr(addr)
		Expect(err).NotTo(HaveOccurred())
		Expect(h.AddrAdd(l, a)).To(Succeed())
		Expect(h.LinkSetUp(l)).To(Succeed())
	}
	here, err := netlink.NewHandle()
	Expect(err).NotTo(HaveOccurred())
	defer here.Close()
	set(here, name, one.String()+"/30")
	set(inside, "eth0", one.Next().String()+"/30")
	Eventually(func() error {
		c, err := net.DialTimeout("tcp", one.Next().String()+":8080", 5*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}, patience).Should(Succeed())
	return one.Next().String()
}

var _ = Describe("Egress", func() {
	BeforeEach(needNode)

	reach := func(flags ...string) string {
		GinkgoHelper()
		to := elsewhere()
		c := newCluster("egress")
		c.must("up", append(c.flags(), flags...)...)
		c.must("load", "--dir="+c.dir, "--cluster="+c.name, "--name=dct/app:1", "--binary="+appBinary)
		c.apply(restricted("default", "out", `[get, "http://`+to+`:8080/", "20s"]`))
		Eventually(func() string { return c.get("get", "pod", "out", "-o", "jsonpath={.status.phase}") }, patience).Should(Or(Equal("Succeeded"), Equal("Failed")))
		// The runtime copies the output of a container, and may not be finished when the container has ended.
		var log string
		Eventually(func() string { log = c.get("logs", "out"); return log }, patience).ShouldNot(BeEmpty())
		return log
	}

	It("is closed unless asked for", func() {
		Expect(reach()).To(ContainSubstring("unreachable"))
	})

	It("lets pods reach what the host reaches", func() {
		Expect(reach("--egress")).To(ContainSubstring("hello from"))
	})
})

var _ = Describe("gVisor", func() {
	BeforeEach(needNode)

	onGVisor := func(name string) string {
		return strings.Replace(restricted("default", name, `[get, "http://127.0.0.1:1/", "1s"]`), "spec:\n", "spec:\n  runtimeClassName: gvisor\n", 1)
	}

	It("is there when it was asked for, and only then", func() {
		c := newCluster("gvisor")
		c.must("up", c.flags()...)
		Expect(c.kubectl("get", "runtimeclass", "gvisor").out).To(ContainSubstring("not found"))
		r := call("up", append(c.flags(), "--gvisor")...)
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring("run down first"))
		c.must("down", c.flags()...)

		c.must("up", append(c.flags(), "--gvisor")...)
		c.must("load", "--dir="+c.dir, "--cluster="+c.name, "--name=dct/app:1", "--binary="+appBinary)
		c.apply(onGVisor("one"))
		Eventually(func() string { return c.get("get", "pod", "one", "-o", "jsonpath={.status.phase}") }, patience).Should(Or(Equal("Succeeded"), Equal("Failed")))
		Expect(c.get("logs", "one")).To(ContainSubstring("refused"), "it ran, and nothing listens there")
	})

	It("needs a node", func() {
		r := call("up", append(newCluster("nogv").flags(), "--gvisor", "--node=false")...)
		Expect(r.code).NotTo(BeZero())
		Expect(r.out).To(ContainSubstring("--gvisor needs a node"))
	})
})
