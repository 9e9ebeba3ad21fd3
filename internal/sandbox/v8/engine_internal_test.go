//go:build linux && (amd64 || arm64)

package v8

import (
	"bufio"
	"os"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("an engine that never gets ready", func() {
	DescribeTable("is given up", func(unconfined bool) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(unix.Close, pair[0])
		theirs := os.NewFile(uintptr(pair[1]), "gate")
		e := &engine{cmd: exec.Command("cat")} // of nothing, for as long as its input is open
		e.cmd.ExtraFiles = []*os.File{theirs}
		e.in, err = e.cmd.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		out, err := e.cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		e.out = bufio.NewReader(out)
		Expect(e.cmd.Start()).To(Succeed())
		Expect(theirs.Close()).To(Succeed())
		Expect(e.ready(pair[0], unconfined, time.Millisecond)).To(MatchError(HavePrefix("it was not ready within 1ms, and was killed")))
		Expect(e.cmd.Wait()).To(MatchError("signal: killed"))
	},
		Entry("that hands no gate over", false),
		Entry("whose harness says nothing", true),
	)
})
