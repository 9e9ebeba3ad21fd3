package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// From the request to the answer, with which the fork can be used: the API server, the runtime API, the Thread object, its
// controller and the store. A manager as a process, without a node.
var _ = Describe("A fork", Label("forks"), func() {
	It("costs the same however long its origin is", func(ctx SpecContext) {
		c, err := harness.Up(ctx, harness.ClusterOptions{Name: "bench-forks", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		for _, folder := range []string{"crd", "admission"} {
			_, err = c.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", folder))
			Expect(err).NotTo(HaveOccurred())
		}
		_, err = c.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		log, err := os.Create(filepath.Join(dir, "manager.log"))
		Expect(err).NotTo(HaveOccurred())
		m, err := c.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "data"), Log: log})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
		ns := namespace(ctx, c)
		create := func(t *skeinv1.Thread) { Expect(c.Client.Create(ctx, t)).To(Succeed()) }
		Expect(c.Client.Create(ctx, harness.Scripted(ns, "model", harness.Echo()))).To(Succeed())
		Expect(c.Client.Create(ctx, harness.Prompt(ns, "prompt", "model"))).To(Succeed())
		Expect(c.Client.Create(ctx, harness.Agent(ns, "agent", "prompt"))).To(Succeed())
		client, err := runtimeclient.New(rest.CopyConfig(c.Config))
		Expect(err).NotTo(HaveOccurred())
		for name, n := range map[string]int{"small": 10, "large": 100_000} {
			create(harness.NewThread(ns, name, "agent"))
			fill(ctx, c.Thread(ns, name), n)
		}

		fork := func(origin string, index int64) time.Duration {
			return timed(func() {
				rec, err := client.Thread(ns, origin).Fork(ctx, runtimev1.NewFork{MessageIndex: &index})
				Expect(err).NotTo(HaveOccurred())
				Expect(rec.MessageCount).To(Equal(index + 1))
			})
		}
		declared := 0
		declare := func(origin string, index int64) time.Duration {
			declared++
			t := harness.NewThread(ns, fmt.Sprint("declared-", declared), "agent", func(s *skeinv1.ThreadSpec) {
				s.ForkFrom = &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: origin}, MessageIndex: ptr.To(index)}
			})
			return timed(func() {
				create(t)
				Eventually(ctx, func(g Gomega) {
					o, err := c.Thread(ns, t.Name).Object(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
				}).WithPolling(time.Millisecond).Should(Succeed())
			})
		}
		for what, make := range map[string]func(string, int64) time.Duration{"POST fork to its answer": fork, "Thread with forkFrom to Ready": declare} {
			make("small", 9) // what is made once
			floor, end, middle := []time.Duration{}, []time.Duration{}, []time.Duration{}
			for range 50 {
				floor = append(floor, make("small", 9))
				end = append(end, make("large", 99_999))
				middle = append(middle, make("large", 50_000))
			}
			figure(what, "at 100,000 messages %s; in their middle p50 %s; at 10 %s  (%.2f and %.2f times; goal 1.00: the same time at 10 and at 100,000)", spread(end), round(quantile(middle, .5)), spread(floor),
				times(end, floor), times(middle, floor))
		}
	}, NodeTimeout(15*time.Minute))
})

// fill imports a conversation of n messages.
func fill(ctx context.Context, t *harness.Thread, n int) {
	GinkgoHelper()
	var lines bytes.Buffer
	fmt.Fprintln(&lines, `{"agentId":"agent","createdAt":"2026-01-01T00:00:00Z"}`)
	for i := range n {
		fmt.Fprintf(&lines, `{"type":"message","role":"user","text":"message %d of a long conversation","timestamp":"2026-01-01T00:00:00Z"}`+"\n", i)
	}
	Eventually(ctx, func() error {
		_, err := t.Request(http.MethodPost, "import").SetHeader("Content-Type", "application/x-ndjson").Body(bytes.NewReader(lines.Bytes())).DoRaw(ctx)
		return err
	}).Should(Succeed())
}
