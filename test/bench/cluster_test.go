package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

const operator = "system:serviceaccount:" + harness.SystemNamespace + ":"

// What needs a real node: pods, the operator installed as a Deployment, the API server's audit log.
var _ = Describe("In a cluster with a node", Ordered, func() {
	var cluster *harness.Cluster
	var ns string

	BeforeAll(func(ctx SpecContext) {
		if os.Getuid() != 0 {
			Skip("a node needs root on Linux: the figures of pods are left out")
		}
		var err error
		cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: "bench", Node: true, AuditLog: true, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		Expect(cluster.Install(ctx)).To(Succeed())
		ns = namespace(ctx, cluster)
		create(ctx, cluster, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
	}, NodeTimeout(20*time.Minute))

	warm := func(ctx SpecContext, pool *skeinv1.SandboxPool, n int32) {
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			g.Expect(pool.Status.Warm).To(BeNumerically(">=", n))
		}).Should(Succeed())
	}
	thread := func(ctx SpecContext, name string) *harness.Thread {
		create(ctx, cluster, harness.NewThread(ns, name, "agent"))
		t := cluster.Thread(ns, name)
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
		}).Should(Succeed())
		return t
	}
	code := runtimev1.CodeRequest{Source: "export default () => 1 + 1"}
	run := func(ctx SpecContext, t *harness.Thread) time.Duration {
		return timed(func() {
			r, err := t.Code(ctx, code)
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		})
	}

	It("claims warm sandboxes", func(ctx SpecContext) {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: skeinv1.DefaultPoolName}, Spec: skeinv1.SandboxPoolSpec{Warm: 3}}
		pool.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: harness.Quantity("1m"), corev1.ResourceMemory: harness.Quantity("16Mi")}
		create(ctx, cluster, pool)
		warm(ctx, pool, 3)

		const claims = 12
		var first, again, floor []time.Duration
		threads := make([]*harness.Thread, 0, claims)
		for i := range claims {
			threads = append(threads, thread(ctx, fmt.Sprintf("claim-%d", i)))
		}
		began := time.Now()
		for _, t := range threads {
			warm(ctx, pool, 1)
			floor = append(floor, timed(func() { Expect(t.Messages(ctx)).To(BeEmpty()) }))
			first = append(first, run(ctx, t))
		}
		warm(ctx, pool, 3)
		writes, err := cluster.Writes(operator, ns, began)
		Expect(err).NotTo(HaveOccurred())
		pods := 0
		for _, w := range writes {
			if strings.HasPrefix(w.Resource, "pods") {
				pods++
			}
		}
		for range 300 {
			again = append(again, run(ctx, threads[0]))
		}
		figure("runtime API, an empty read (the floor)", "%s", spread(floor))
		figure("warm claim → first code result, over the API", "%s", spread(first))
		figure("API writes per claim, refill included", "%.2f on pods, %.2f in all (budget 2)", float64(pods)/claims, float64(len(writes))/claims)
		figure("runCode on a claimed pod, over the API", "%s", spread(again))
	}, SpecTimeout(10*time.Minute))

	It("writes little", func(ctx SpecContext) {
		const threads, turns = 5, 20
		ts := make([]*harness.Thread, threads)
		for i := range ts {
			ts[i] = thread(ctx, fmt.Sprintf("turns-%d", i))
		}
		began := time.Now()
		for turn := range turns {
			for _, t := range ts {
				Expect(t.Say(ctx, "hello")).To(Succeed())
			}
			for _, t := range ts {
				Eventually(ctx, func(g Gomega) {
					p, err := t.Page(ctx, "limit=1")
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(p.Total).To(BeEquivalentTo(2 * (turn + 1)))
				}).Should(Succeed())
			}
		}
		for _, t := range ts { // the last coalesced write
			Eventually(ctx, func(g Gomega) {
				o, err := t.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.Messages).To(BeEquivalentTo(2 * turns))
			}).Should(Succeed())
		}
		writes, err := cluster.Writes(operator, ns, began)
		Expect(err).NotTo(HaveOccurred())
		figure("API writes per turn", "%.2f (budget: at most 1, 0 per message)", float64(len(writes))/(threads*turns))
	}, SpecTimeout(10*time.Minute))

	It("is small with idle threads", func(ctx SpecContext) {
		const idle = 1000
		before := memory(ctx, cluster)
		took := timed(func() {
			for i := range idle {
				create(ctx, cluster, harness.NewThread(ns, fmt.Sprintf("idle-%d", i), "agent"))
			}
			Eventually(ctx, func(g Gomega) {
				var l skeinv1.ThreadList
				g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
				ready := 0
				for _, t := range l.Items {
					if t.Status.Phase == "Idle" {
						ready++
					}
				}
				g.Expect(ready).To(BeNumerically(">=", idle))
			}).WithPolling(time.Second).Should(Succeed())
		})
		after := memory(ctx, cluster)
		figure("manager memory, 1,000 idle threads", "%.0f MiB resident (%.0f MiB before them), all Ready after %s", after, before, took.Round(100*time.Millisecond))
	}, SpecTimeout(15*time.Minute))
})

// memory is the manager's resident set in MiB, as the kubelet sees it.
func memory(ctx SpecContext, c *harness.Cluster) float64 {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(c.Client.List(ctx, &nodes)).To(Succeed())
	raw, err := c.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+nodes.Items[0].Name+"/proxy/stats/summary?only_cpu_and_memory=true")
	Expect(err).NotTo(HaveOccurred())
	var summary struct {
		Pods []struct {
			PodRef     struct{ Namespace, Name string }
			Containers []struct {
				Memory struct{ RSSBytes uint64 }
			}
		}
	}
	Expect(json.Unmarshal([]byte(raw), &summary)).To(Succeed())
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == harness.SystemNamespace && strings.HasPrefix(p.PodRef.Name, "skein-manager") {
			return float64(p.Containers[0].Memory.RSSBytes) / (1 << 20)
		}
	}
	Fail("the kubelet knows no manager pod")
	return 0
}
