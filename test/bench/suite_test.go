// Package bench prints the figures of the budget. Nothing here asserts a time: the
// machines are noisy, so each figure stands beside a floor that was measured in the same run.
package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/gctune"
	"github.com/skein-dev/skein/test/harness"
)

func TestBench(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(5 * time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	gctune.ByHeap() // engines and stores of this process cost what they cost in a manager
	RunSpecs(t, "Bench")
}

// figure prints one line of the result: name, value, and what it is to be compared with.
func figure(name, format string, args ...any) {
	fmt.Fprintf(os.Stdout, "BENCH %-46s %s\n", name, fmt.Sprintf(format, args...))
}

// quantile of durations, 0 < q < 1.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(int(float64(len(s))*q), len(s)-1)]
}

func spread(d []time.Duration) string {
	return fmt.Sprintf("p50 %s  p95 %s  p99 %s  (n=%d)", round(quantile(d, .5)), round(quantile(d, .95)), round(quantile(d, .99)), len(d))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// timed gives how long f took.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func namespace(ctx context.Context, c *harness.Cluster) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	Expect(c.Client.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

// installCRDs applies the CRDs and, as nearly all benches have it, the policy of config/mutation.
func installCRDs(ctx context.Context, c *harness.Cluster) {
	GinkgoHelper()
	Expect(c.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
	Expect(c.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
	installPolicy(ctx, c)
}

// installPolicy applies the policy of config/mutation, and waits until it acts. Until the API server has looked for new kinds, which it does every
// five seconds for such policies, it refuses Threads.
func installPolicy(ctx context.Context, c *harness.Cluster) {
	GinkgoHelper()
	Expect(c.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "mutation"))).Error().NotTo(HaveOccurred())
	Eventually(ctx, func() ([]string, error) {
		t := harness.NewThread(metav1.NamespaceDefault, "probe", "agent")
		err := c.Client.Create(ctx, t, client.DryRunAll)
		return t.Finalizers, err
	}).ShouldNot(BeEmpty(), "the API server has the policy of config/mutation")
}

func create(ctx context.Context, c *harness.Cluster, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(c.Client.Create(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}
