//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// memoryMaxEnv means that the test is alone in a control group v2, which it sees at the place where a container does,
// and says how many bytes the group may use (make test-arm64).
const memoryMaxEnv = "SKEIN_TEST_MEMORY_MAX"

var _ = func() bool {
	if limit, err := strconv.ParseInt(os.Getenv(memoryMaxEnv), 10, 64); err == nil {
		Describe("a control group v2", Label("COD-06", "COD-08"), func() { cgroupSpecs(limit) })
	}
	return true
}()

func cgroupSpecs(limit int64) {
	It("says how much memory all that runs may use", func() {
		ctx := within(2 * time.Minute)
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Concurrency, o.MaxWallTime = 64, 3*time.Second })
		c := s.Dial(GinkgoT(), "thread")
		room, each := limit-64<<20, supervisor.Defaults().MaxMemory
		for range room / each {
			i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(i.Close)
		}
		r := c.RunCode(ctx, sandbox.CodeRequest{Source: one, MemoryLimitBytes: each}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusMemory), "%v", r.Error)
		Expect(r.Error.Message).To(ContainSubstring(fmt.Sprintf("what runs in the sandbox may use %d MiB in all", room>>20)))
	})

	It("ends a child whose engine is broken and takes all of it, and nothing else", func() {
		killed := oomKills()
		r := attack("more memory than it may have", time.Minute)
		Expect(r.Status).To(BeElementOf(sandbox.StatusTerminated, sandbox.StatusMemory))
		Expect(r.Retriable).To(BeFalse())
		Expect(oomKills()).To(Equal(killed + 1))
	})
}

// oomKills returns how many processes the kernel has killed because the group was full.
func oomKills() int {
	GinkgoHelper()
	text, err := os.ReadFile("/sys/fs/cgroup/memory.events")
	Expect(err).NotTo(HaveOccurred())
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			count, err := strconv.Atoi(n)
			Expect(err).NotTo(HaveOccurred())
			return count
		}
	}
	Fail("memory.events has no oom_kill")
	return 0
}
