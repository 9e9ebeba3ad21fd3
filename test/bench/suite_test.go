// Package bench prints the figures of the budget. Nothing here asserts a time: the
// machines are noisy, so each figure stands beside a floor that was measured in the same run.
package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/test/harness"
)

func TestBench(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(5 * time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
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

func create(ctx context.Context, c *harness.Cluster, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(c.Client.Create(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}
