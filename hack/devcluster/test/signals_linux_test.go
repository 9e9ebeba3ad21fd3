package test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

// start runs a command of devcluster.sh in the background.
func start(args ...string) *gexec.Session {
	GinkgoHelper()
	s, err := gexec.Start(exec.Command(script, args...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { s.Kill().Wait(patience) })
	return s
}

var _ = Describe("A signal", func() {
	It("to up in the foreground takes everything down", func() {
		c := newCluster("fg")
		s := start(append([]string{"up", "--foreground", "--node=false"}, c.flags()...)...)
		Eventually(s, patience).Should(gbytes.Say("Ctrl-C takes the cluster down"))
		Expect(c.get("get", "--raw", "/readyz")).To(Equal("ok"))
		s.Interrupt()
		Eventually(s, patience).Should(gexec.Exit(0))
		Expect(c.dir).NotTo(BeADirectory())
		Eventually(func() []string { return processesOf(c, "") }, patience).Should(BeEmpty())
	})

	It("that kills up in the foreground stops the cluster", func() {
		c := newCluster("fgkill")
		s := start(append([]string{"up", "--foreground", "--node=false"}, c.flags()...)...)
		Eventually(s, patience).Should(gbytes.Say("Ctrl-C takes the cluster down"))
		s.Kill()
		Eventually(func() []string { return processesOf(c, "") }, patience).Should(BeEmpty())
	})

	It("to an up that has not finished leaves nothing", func() {
		c := newCluster("early")
		s := start(append([]string{"up"}, c.flags()...)...)
		Eventually(s, patience).Should(gbytes.Say("etcd is ready"))
		s.Interrupt()
		Eventually(s, patience).Should(gexec.Exit(1))
		Expect(s.Err).To(gbytes.Say("interrupted"))
		Expect(c.dir).NotTo(BeADirectory())
		Eventually(func() []string { return processesOf(c, "") }, patience).Should(BeEmpty())
	})
})

var _ = Describe("Without root", func() {
	It("a control plane runs, and up says why there is no node", func() {
		if os.Geteuid() != 0 {
			Skip("this test process is not root, so every other test is this one")
		}
		// The cache may be in root's home, where no other user can read.
		dir, err := os.MkdirTemp("", "dct-user-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		Expect(os.Chmod(dir, 0o777)).To(Succeed())
		assets := strings.TrimSpace(call("env", "--assets").out)
		in, err := os.Open(filepath.Join(filepath.Dir(assets), "devcluster"))
		Expect(err).NotTo(HaveOccurred())
		defer in.Close()
		bin := filepath.Join(dir, "devcluster")
		out, err := os.OpenFile(bin, os.O_CREATE|os.O_WRONLY, 0o755)
		Expect(err).NotTo(HaveOccurred())
		_, err = io.Copy(out, in)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Close()).To(Succeed())
		try := func(args ...string) (string, error) {
			cmd := exec.Command(bin, append(args, "--dir="+filepath.Join(dir, "run"))...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		run := func(args ...string) string {
			GinkgoHelper()
			out, err := try(args...)
			Expect(err).NotTo(HaveOccurred(), out)
			return out
		}
		DeferCleanup(func() { run("down") })
		Expect(run("up")).To(ContainSubstring("control plane only, so pods will not run: a node needs root"))
		Eventually(func() (string, error) { return try("status") }, patience).Should(MatchRegexp(`(?m)^kube-apiserver\s+ready`))
		run("down")
	})
})
