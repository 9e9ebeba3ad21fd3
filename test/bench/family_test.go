package bench

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// What children cost through the whole stack: a cluster without a node, and a manager beside it.
var _ = Describe("A family", Ordered, func() {
	var cluster *harness.Cluster

	BeforeAll(func(ctx SpecContext) {
		var err error
		cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: "family", AuditLog: true, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		Expect(cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: []string{"--thread-subagents=2000"}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		Expect(m.Start(ctx)).To(Succeed())
	}, NodeTimeout(10*time.Minute))

	call := skeinv1.ScriptToolCall{Name: "subagent_create", Arguments: harness.Raw(map[string]any{"agent": "helper", "message": "help"})}
	// family declares agents of which the parent starts so many children, at most 100 in a step, as an answer has at most 128 calls.
	family := func(ctx SpecContext, calls int, edit func(*skeinv1.AgentSubagent), then ...skeinv1.ScriptStep) (ns string) {
		GinkgoHelper()
		ns = namespace(ctx, cluster)
		var steps []skeinv1.ScriptStep
		for left := calls; left > 0; left -= 100 {
			var step skeinv1.ScriptStep
			for range min(left, 100) {
				step.ToolCalls = append(step.ToolCalls, call)
			}
			steps = append(steps, step)
		}
		prompt := harness.Prompt(ns, "parent", "parent", "builtin:subagents")
		prompt.Spec.ParallelToolCalls = true
		kind := skeinv1.AgentSubagent{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Description: "helps"}
		edit(&kind)
		create(ctx, cluster, harness.Scripted(ns, "parent", append(steps, then...)...), prompt,
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) { s.Subagents = []skeinv1.AgentSubagent{kind} }),
			harness.Scripted(ns, "child", harness.Answer("helped")), harness.Prompt(ns, "child", "child"), harness.Agent(ns, "child", "child"))
		Eventually(ctx, func(g Gomega) {
			for _, name := range []string{"parent", "child"} {
				var a skeinv1.Agent
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &a)).To(Succeed())
				g.Expect(a.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", BeEquivalentTo("True")))))
			}
		}).Should(Succeed())
		return ns
	}
	start := func(ctx SpecContext, ns, name string) *skeinv1.Thread {
		GinkgoHelper()
		t := harness.NewThread(ns, name, "parent", func(s *skeinv1.ThreadSpec) { s.Message = "go" })
		create(ctx, cluster, t)
		return t
	}
	until := func(ctx SpecContext, t *skeinv1.Thread, is func(*skeinv1.ThreadStatus) bool) {
		GinkgoHelper()
		Eventually(ctx, func() bool {
			return cluster.Client.Get(ctx, client.ObjectKeyFromObject(t), t) == nil && is(&t.Status)
		}).WithPolling(2 * time.Millisecond).Should(BeTrue())
	}
	done := func(s *skeinv1.ThreadStatus) bool {
		return s.LastRun != nil && s.LastRun.Outcome == skeinv1.RunSucceeded
	}

	It("goes to a child and back", func(ctx SpecContext) {
		const n = 60
		ns := family(ctx, 1, func(s *skeinv1.AgentSubagent) { s.Blocking = true }, harness.Answer("done"))
		began := time.Now()
		var all []time.Duration
		for i := range n {
			all = append(all, timed(func() { until(ctx, start(ctx, ns, fmt.Sprint("p-", i)), done) }))
		}
		figure("new parent to child to parent, seen in its status", "%s", spread(all))
		Eventually(ctx, func(g Gomega) { // the last writes
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			for i := range l.Items {
				if s := &l.Items[i].Status; s.Parent == "" {
					g.Expect(s.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: 1})))
				}
			}
		}).Should(Succeed())
		Expect(cluster.Kubectl(ctx, "-n", ns, "delete", "threads", "-l", "!skein.dev/root-thread", "--wait=false")).Error().NotTo(HaveOccurred())
		Expect(cluster.Kubectl(ctx, "-n", ns, "delete", "threads", "--all")).Error().NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.SubagentList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			g.Expect(l.Items).To(BeEmpty())
		}).Should(Succeed())
		writes, err := cluster.Writes("", ns, began)
		Expect(err).NotTo(HaveOccurred())
		kinds := map[string]int{}
		for _, w := range writes {
			kinds[w.Verb+" "+w.Resource]++
		}
		figure("API writes of a parent and its child", "%.1f  %v", float64(len(writes))/n, kinds)
	}, SpecTimeout(10*time.Minute))

	It("stops a running child when its parent is deleted", func(ctx SpecContext) {
		called, stopped := make(chan struct{}), make(chan struct{})
		provider := harness.NewChatServer(func(_ http.ResponseWriter, r *http.Request, _ harness.ChatRequest) {
			called <- struct{}{}
			<-r.Context().Done()
			stopped <- struct{}{}
		})
		DeferCleanup(provider.Close)
		ns := family(ctx, 1, func(s *skeinv1.AgentSubagent) { s.Blocking = true; s.AgentRef.Name = "slow" }, harness.Answer("done"))
		create(ctx, cluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "k-e-y"}},
			harness.OpenAI(ns, "slow", provider.URL, "key"), harness.Prompt(ns, "slow", "slow"), harness.Agent(ns, "slow", "slow"))
		var all []time.Duration
		for i := range 30 {
			t := start(ctx, ns, fmt.Sprint("p-", i))
			<-called
			all = append(all, timed(func() {
				Expect(cluster.Client.Delete(ctx, t)).To(Succeed())
				<-stopped
			}))
		}
		figure("deletion of a parent to the stop of its running child", "%s (goal 100 ms)", spread(all))
	}, SpecTimeout(5*time.Minute))

	It("has 1,000 children", func(ctx SpecContext) {
		ns := family(ctx, 1000, func(s *skeinv1.AgentSubagent) {
			s.ParentCommunication, s.MaxInstances, s.Resumable = skeinv1.CommunicationExplicit, 2000, true
		}, harness.Answer("done"))
		t := start(ctx, ns, "parent")
		took := timed(func() {
			until(ctx, t, func(s *skeinv1.ThreadStatus) bool { return s.ChildCounts != nil && s.ChildCounts.Completed >= 1000 })
		})
		figure("1,000 children of one parent", "%s until all are shown as completed (goal 8 s)", took.Round(10*time.Millisecond))
		took = timed(func() {
			_, err := cluster.Thread(ns, t.Name).Request(http.MethodPost, "terminate").DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func(g Gomega) {
				var l skeinv1.ThreadList
				g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
				ended := 0
				for i := range l.Items {
					if l.Items[i].Status.TerminatedAt != 0 {
						ended++
					}
				}
				g.Expect(ended).To(Equal(1001))
			}).WithPolling(100 * time.Millisecond).Should(Succeed())
		})
		figure("termination of a parent with 1,000 children", "%s until all are shown as terminated (goal 10 s)", took.Round(10*time.Millisecond))
		took = timed(func() {
			Expect(cluster.Kubectl(ctx, "-n", ns, "delete", "thread", t.Name)).Error().NotTo(HaveOccurred())
		})
		figure("deletion of a parent with 1,000 children", "%s", took.Round(10*time.Millisecond))
	}, SpecTimeout(10*time.Minute))
})
