package bench

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

// From the moment when a manager on SQLite is killed, or told to end, until the next one on its data folder is ready and its
// runtime API answers through the API server. A control plane without a node, and the manager as a local process.
var _ = Describe("A manager that starts again", Label("restart"), func() {
	It("serves soon", func(ctx SpecContext) {
		cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "bench-restart", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		Expect(cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: []string{"--leader-elect"}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		Expect(m.Start(ctx)).To(Succeed())
		again, start := restarts(ctx, m, m.Kill)
		figure("API again after SIGKILL, SQLite", "%s  (goal 3 s)", spread(again))
		figure("  from start to serving", "%s  (goal 1 s)", spread(start))
		again, start = restarts(ctx, m, m.Stop)
		figure("API again after SIGTERM, SQLite", "%s", spread(again))
		figure("  from start to serving", "%s  (goal 1 s)", spread(start))
	}, NodeTimeout(20*time.Minute))
})

// restarts returns how long it took to serve again after each of ten ends, and from the start that followed.
func restarts(ctx context.Context, m *harness.Manager, end func()) (again, start []time.Duration) {
	GinkgoHelper()
	for range 10 {
		again = append(again, timed(func() {
			end()
			start = append(start, timed(func() { Expect(m.Start(ctx)).To(Succeed()) }))
		}))
	}
	return again, start
}
