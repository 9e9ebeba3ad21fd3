//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("the reaper", func() {
	It("buries orphans, and leaves its own children to who waits for them", func() {
		Expect(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)).To(Succeed())
		DeferCleanup(unix.Prctl, unix.PR_SET_CHILD_SUBREAPER, uintptr(0), uintptr(0), uintptr(0), uintptr(0))
		r := newReaper(true)
		DeferCleanup(r.close)

		start := func(script string) (*exec.Cmd, *strings.Builder) {
			GinkgoHelper()
			out := &strings.Builder{}
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Stdout = out
			r.lock()
			defer r.unlock()
			Expect(cmd.Start()).To(Succeed())
			r.own(cmd.Process.Pid)
			return cmd, out
		}
		own, _ := start("exit 7")
		parent, said := start("sh -c 'exit 3' >&- & echo $!")
		Expect(parent.Wait()).To(Succeed())
		r.forget(parent.Process.Pid)
		orphan, err := strconv.Atoi(strings.TrimSpace(said.String()))
		Expect(err).NotTo(HaveOccurred())

		err = own.Wait()
		Expect(err).To(MatchError("exit status 7"))
		r.forget(own.Process.Pid)
		Eventually(func() error { return syscall.Kill(orphan, 0) }, "2m").Should(MatchError(syscall.ESRCH))
	})
})
