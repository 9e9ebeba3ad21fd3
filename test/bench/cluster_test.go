package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		installPolicy(ctx, cluster)
		ns = namespace(ctx, cluster)
		create(ctx, cluster, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
	}, NodeTimeout(20*time.Minute))

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
	// What code costs at each stage of a sandbox; every figure of pods stands in one run beside its floor.
	Describe("sandboxes", Ordered, Label("sandboxes"), func() {
		var b *sandboxBench
		BeforeAll(func() {
			b = &sandboxBench{cluster: cluster, ns: ns, thread: thread}
		})
		AfterEach(func() { // figures of a machine that does other things too are to be known as such
			load, err := os.ReadFile("/proc/loadavg")
			Expect(err).NotTo(HaveOccurred())
			figure("  load average over 1, 5 and 15 minutes", "%s (%d processors)", strings.Join(strings.Fields(string(load))[:3], " "), runtime.NumCPU())
		})
		It("answer from a warm pod", func(ctx SpecContext) { b.warmClaims(ctx, 40) }, SpecTimeout(10*time.Minute))
		It("answer a burst", func(ctx SpecContext) { b.bursts(ctx, 12, 5) }, SpecTimeout(10*time.Minute))
		It("start cold", func(ctx SpecContext) { b.cold(ctx, 40) }, SpecTimeout(20*time.Minute))
		It("answer back to back", func(ctx SpecContext) { b.paces(ctx, 6, 50) }, SpecTimeout(10*time.Minute))
		It("are claimed as fast as pods start", func(ctx SpecContext) { b.sustained(ctx, 10, 2, 40) }, SpecTimeout(20*time.Minute))
		It("are claimed as fast as pods start, from a large pool", func(ctx SpecContext) { b.sustained(ctx, 50, 1, 50) }, SpecTimeout(20*time.Minute))
	})

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

	It("writes little for a new Thread", func(ctx SpecContext) {
		const n = 50
		for _, kind := range []struct{ name, message string }{{"without a message", ""}, {"with a message, one after another", "hello"}} {
			began := time.Now()
			for i := range n {
				name := fmt.Sprintf("new-%d-%d", len(kind.message), i)
				create(ctx, cluster, harness.NewThread(ns, name, "agent", func(s *skeinv1.ThreadSpec) { s.Message = kind.message }))
				Eventually(ctx, func(g Gomega) {
					o, err := cluster.Thread(ns, name).Object(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
					if kind.message != "" {
						g.Expect(o.Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
					}
				}).WithPolling(50 * time.Millisecond).Should(Succeed())
			}
			writes, err := cluster.Writes(operator, ns, began)
			Expect(err).NotTo(HaveOccurred())
			figure("API writes of the manager for a Thread "+kind.name, "%.2f (goal 1)", float64(len(writes))/n)
		}
		began := time.Now()
		Expect(cluster.Client.DeleteAllOf(ctx, &skeinv1.Thread{}, client.InNamespace(ns))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			g.Expect(l.Items).To(BeEmpty())
		}).Should(Succeed())
		writes, err := cluster.Writes(operator, ns, began)
		Expect(err).NotTo(HaveOccurred())
		figure("API writes of the manager for its deletion", "%.2f (goal 1); refused %s (goal 0)", float64(len(writes))/(2*n), refusedWrites(cluster, operator, ns, began).each(2*n))
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
