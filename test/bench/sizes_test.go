package bench

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/test/harness"
)

const megabyte = 1_000_000

// How large the programs and images are, and how soon a manager serves: on a new data folder, where it makes its database and its certificates, and on
// one that it knows. A control plane without a node, and the manager as a local process.
var _ = Describe("The manager", Ordered, Label("sizes"), func() {
	It("is small", func() {
		// The manager's goal is half of the 139 MB that it had. It is also what a process that is a sandbox runs.
		goals := map[string]string{"manager": " (goal 70 MB)"}
		for _, name := range []string{"manager", "sandbox", "sandbox-child", "kubectl-skein"} {
			info, err := os.Stat(harness.Bin(name))
			Expect(err).NotTo(HaveOccurred(), "run `make build` first")
			figure("size of bin/"+name, "%.1f MB%s, %.1f MB compressed", float64(info.Size())/megabyte, goals[name], float64(compressed(harness.Bin(name)))/megabyte)
		}
	})

	It("has small images", func(ctx SpecContext) {
		if _, err := exec.LookPath("buildah"); err != nil || os.Getuid() != 0 {
			Skip("hack/image.sh needs buildah and root: an image is its programs and nothing else")
		}
		for _, name := range []string{"manager", "sandbox"} {
			archive := filepath.Join(GinkgoT().TempDir(), name+".tar")
			out, err := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "image.sh"), name, "skein.dev/"+name+":bench", archive).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			info, err := os.Stat(archive)
			Expect(err).NotTo(HaveOccurred())
			figure("size of the image "+name, "%.1f MB as an archive, compressed", float64(info.Size())/megabyte)
		}
	}, SpecTimeout(10*time.Minute))

	It("serves soon", func(ctx SpecContext) {
		cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "bench-sizes", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		Expect(cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
		var first, again serving
		for range 5 {
			m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(m.Stop)
			first.add(ctx, m)
			m.Stop()
			again.add(ctx, m)
			m.Stop()
		}
		figure("first start to serving, new data folder", "%s  (goal 1 s)", &first)
		figure("restart to serving", "%s  (goal 1 s)", &again)
	}, SpecTimeout(10*time.Minute))
})

// compressed returns the size of a file as a layer of an image has it.
func compressed(path string) int64 {
	GinkgoHelper()
	f, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(f.Close()).To(Succeed()) }()
	var size counter
	z := gzip.NewWriter(&size)
	Expect(io.Copy(z, f)).Error().NotTo(HaveOccurred())
	Expect(z.Close()).To(Succeed())
	return int64(size)
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// serving is how long managers took until they said that they were ready, and until the runtime API answered through the API server, and the
// processor time that they had used by then.
type serving struct{ ready, served, used []time.Duration }

func (s *serving) add(ctx context.Context, m *harness.Manager) {
	GinkgoHelper()
	began := time.Now()
	ready := make(chan time.Duration, 1)
	go func() {
		for {
			if ok, err := m.Ready(ctx); ok && err == nil {
				ready <- time.Since(began)
				return
			}
			if ctx.Err() != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	Expect(m.Start(ctx)).To(Succeed())
	s.served = append(s.served, time.Since(began))
	s.used = append(s.used, processes()[m.PID()].used)
	s.ready = append(s.ready, <-ready)
}

func (s *serving) String() string {
	return fmt.Sprintf("%s; ready p50 %s; %s of processor time", spread(s.served), round(quantile(s.ready, .5)), round(quantile(s.used, .5)))
}
