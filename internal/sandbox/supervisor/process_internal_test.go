//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a spawner", func() {
	It("starts processes that have no_new_privs from the beginning", func() {
		s := newSpawner()
		defer s.close()
		cmd := exec.Command("cat", "/proc/self/status")
		var out strings.Builder
		cmd.Stdout = &out
		Expect(s.start(cmd)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed())
		Expect(out.String()).To(ContainSubstring("NoNewPrivs:\t1\n"))
	})
})
