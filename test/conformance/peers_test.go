package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

// What `make bench-peers` runs, with Skein in the place of a peer. The others need a node, and images of theirs.
var _ = Describe("The times of peers", Label("K8S-04"), func() {
	peers := func(ctx SpecContext, env ...string) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "peers", "run.sh"))
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+cluster.Path(), "PATIENCE=60")
		cmd.Env = append(cmd.Env, env...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second // the watch of kubectl has the pipes, too
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return string(out), err
	}
	times := `^skein: n=3 p50 [0-9.]+ ms p95 [0-9.]+ ms worst [0-9.]+ ms`

	It("can be measured for Threads, one after another and at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		Expect(peers(ctx, "NAMESPACE="+ns, "PEER=skein", "N=3")).To(MatchRegexp(times + `\n$`))
		Expect(peers(ctx, "NAMESPACE="+ns, "PEER=skein", "N=3", "AT=once")).To(MatchRegexp(times + ` at once: [0-9.]+ a second\n$`))
	}, SpecTimeout(3*patience))

	It("say what each peer needs, and which there are", func(ctx SpecContext) {
		out, err := peers(ctx, "PEER=")
		Expect(err).NotTo(HaveOccurred())
		files, err := filepath.Glob(filepath.Join(harness.Root(), "hack", "peers", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			Expect(out).To(ContainSubstring("\n  " + strings.TrimSuffix(filepath.Base(file), ".yaml") + " "))
		}
		_, err = peers(ctx, "PEER=cron")
		Expect(err).To(MatchError(ContainSubstring("give skein, acp, agent-sandbox or job")))
	}, SpecTimeout(patience))
})
