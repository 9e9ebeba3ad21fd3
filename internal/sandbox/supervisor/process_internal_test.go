//go:build linux && (amd64 || arm64)

package supervisor

import (
	"io"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
)

var _ = Describe("a spawner", func() {
	output := func(o Options, file string) string {
		GinkgoHelper()
		s := newSpawner(slackOf(o))
		defer s.close()
		cmd := exec.Command("cat", file)
		out, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(s.start(cmd)).To(Succeed())
		text, err := io.ReadAll(out)
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Wait()).To(Succeed())
		return string(text)
	}

	It("starts processes that have no_new_privs from the beginning", func() {
		Expect(output(Options{}, "/proc/self/status")).To(ContainSubstring("NoNewPrivs:\t1\n"))
	})

	It("lets the timers of the default engine be later than those of another", func() {
		Expect(output(Options{Engine: sandbox.QuickJS}, "/proc/self/timerslack_ns")).To(Equal("1000000\n"))
		Expect(output(Options{Engine: sandbox.V8}, "/proc/self/timerslack_ns")).To(Equal("200000\n"))
	})
})
