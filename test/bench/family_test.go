package bench

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// What children cost through the whole stack: a cluster without a node, and a manager beside it.
var _ = Describe("A family", Ordered, Label("families"), func() {
	var cluster *harness.Cluster

	BeforeAll(func(ctx SpecContext) {
		var err error
		cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: "family", AuditLog: true, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		installCRDs(ctx, cluster)
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: append([]string{"--thread-subagents=2000", "--tool-private-hosts=127.0.0.1"}, strings.Fields(os.Getenv("SKEIN_BENCH_ARGS"))...)})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		Expect(m.Start(ctx)).To(Succeed())
	}, NodeTimeout(10*time.Minute))

	call := skeinv1.ScriptToolCall{Name: "subagent_create", Arguments: harness.Raw(map[string]any{"agent": "helper", "message": "help"})}
	helps := func(ns string) []client.Object {
		return []client.Object{harness.Scripted(ns, "child", harness.Answer("helped"))}
	}
	// family declares agents of which the parent starts so many children, at most 32 in a step, as a step of a script has at most 32 calls.
	// model gives the Model of the children, and what that needs.
	family := func(ctx SpecContext, calls int, edit func(*skeinv1.AgentSubagent), model func(ns string) []client.Object, then ...skeinv1.ScriptStep) (ns string) {
		GinkgoHelper()
		ns = namespace(ctx, cluster)
		var steps []skeinv1.ScriptStep
		for left := calls; left > 0; left -= 32 {
			var step skeinv1.ScriptStep
			for range min(left, 32) {
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
			harness.Prompt(ns, "child", "child"), harness.Agent(ns, "child", "child"))
		create(ctx, cluster, model(ns)...)
		Eventually(ctx, func(g Gomega) {
			for _, name := range []string{"parent", "child"} {
				var a skeinv1.Agent
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &a)).To(Succeed())
				g.Expect(a.Status.Conditions).To(ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", BeEquivalentTo("True")))))
			}
		}).Should(Succeed())
		return ns
	}
	start := func(ctx SpecContext, ns, name, agent string) *skeinv1.Thread {
		GinkgoHelper()
		t := harness.NewThread(ns, name, agent, func(s *skeinv1.ThreadSpec) { s.Message = "go" })
		create(ctx, cluster, t)
		return t
	}
	until := func(ctx SpecContext, t *skeinv1.Thread, is func(*skeinv1.ThreadStatus) bool) {
		GinkgoHelper()
		shown(ctx, cluster, 1, is, client.InNamespace(t.Namespace), client.MatchingFields{"metadata.name": t.Name})
	}
	// watched opens a watch of a Thread, which need not exist yet. The API server takes a moment to bring a new watch up to date, which is
	// no part of what a thread takes.
	watched := func(ctx SpecContext, ns, name string) watch.Interface {
		GinkgoHelper()
		w, err := cluster.Client.Watch(ctx, &skeinv1.ThreadList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": name})
		Expect(err).NotTo(HaveOccurred())
		return w
	}
	seen := func(w watch.Interface, is func(*skeinv1.ThreadStatus) bool) {
		GinkgoHelper()
		for e := range w.ResultChan() {
			if t, ok := e.Object.(*skeinv1.Thread); ok && is(&t.Status) {
				return
			}
		}
		Fail("the watch has ended")
	}
	done := func(s *skeinv1.ThreadStatus) bool {
		return s.LastRun != nil && s.LastRun.Outcome == skeinv1.RunSucceeded
	}

	It("goes to a child and back", func(ctx SpecContext) {
		const n = 60
		ns := family(ctx, 1, func(s *skeinv1.AgentSubagent) { s.Blocking = true }, helps, harness.Answer("done"))
		started := time.Now()
		// each starts threads of an agent, one after the other, and waits until nothing is written about them any more.
		each := func(prefix, agent string, children int32) (took []time.Duration) {
			for i := range n {
				name := fmt.Sprint(prefix, i)
				w := watched(ctx, ns, name)
				took = append(took, timed(func() {
					start(ctx, ns, name, agent)
					seen(w, done)
				}))
				w.Stop()
			}
			Eventually(ctx, func(g Gomega) {
				var l skeinv1.ThreadList
				g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
				for i := range l.Items {
					switch o := &l.Items[i]; {
					case o.Status.Parent != "":
						g.Expect(o.Status.TerminatedAt).NotTo(BeZero())
					case strings.HasPrefix(o.Name, prefix):
						g.Expect(ptr.Deref(o.Status.ChildCounts, skeinv1.ChildCounts{}).Completed).To(Equal(children))
					}
				}
			}).Should(Succeed())
			return took
		}
		alone := each("alone-", "child", 0)
		before := timesWith(filepath.Dir(cluster.Kubeconfig))
		all := each("pair-", "parent", 1)
		used := timesWith(filepath.Dir(cluster.Kubeconfig)).since(before, n)
		floor := plainWrites(ctx, cluster, ns, n)
		var singles, pairs []string
		for i := range n {
			singles, pairs = append(singles, fmt.Sprint("alone-", i)), append(pairs, fmt.Sprint("pair-", i))
		}
		figure("new parent to child to parent, seen in its status", "%s (goal p50 30 ms)", spread(all))
		stagesOf(ctx, cluster, ns, started, pairs).print()
		figure("  floor: four plain writes, one after the other", "%s; %.1f times that", spread(floor), times(all, floor))
		figure("  a new thread without a child", "%s; %.1f times that", spread(alone), times(all, alone))
		stagesOf(ctx, cluster, ns, started, singles).print()
		figure("  processor time of each", "%s", used)
		time.Sleep(2 * time.Second) // what is gathered for a second
		family := writesOf(cluster, ns, "pair-", started)
		figure("  API writes of a parent and its child", "%s (goal 6)", family.each(n))

		Expect(cluster.Kubectl(ctx, "-n", ns, "delete", "threads", "-l", "!skein.dev/root-thread-id")).Error().NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.SubagentList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			g.Expect(l.Items).To(BeEmpty())
		}).Should(Succeed())
		of := writesOf(cluster, ns, "pair-", started)
		of.subtract(writesOf(cluster, ns, "alone-", started))
		figure("  API writes of a child over its life", "%s: what a parent has besides a thread without a child (goal 6; ADR 3 has the list of 7)", of.each(n))
		figure("  refused writes of a parent, a child and another", "%s (goal 0)", refusedWrites(cluster, "", ns, started).each(n))
	}, SpecTimeout(10*time.Minute))

	It("goes to a child that is removed as it ends", func(ctx SpecContext) {
		const n = 30
		ns := family(ctx, 1, func(s *skeinv1.AgentSubagent) { s.Blocking, s.TTLAfterFinished = true, &metav1.Duration{} }, helps, harness.Answer("done"))
		started := time.Now()
		for i := range n {
			until(ctx, start(ctx, ns, fmt.Sprint("pair-", i), "parent"), done)
		}
		Eventually(ctx, func(g Gomega) {
			var threads skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &threads, client.InNamespace(ns))).To(Succeed())
			g.Expect(threads.Items).To(HaveLen(n))
			for i := range threads.Items {
				g.Expect(threads.Items[i].Status.ChildCount).To(BeZero())
			}
		}).Should(Succeed())
		of := writesWhere(cluster, ns, started, func(name string) bool { return strings.Contains(name, "-helper-") })
		figure("API writes of a child that is removed as it ends", "%s (goal 6)", of.each(n))
	}, SpecTimeout(5*time.Minute))

	It("stops a running child when its parent is deleted", func(ctx SpecContext) {
		called, stopped := make(chan struct{}), make(chan struct{})
		provider := harness.NewChatServer(func(_ http.ResponseWriter, r *http.Request, _ harness.ChatRequest) {
			called <- struct{}{}
			<-r.Context().Done()
			stopped <- struct{}{}
		})
		DeferCleanup(provider.Close)
		slow := func(ns string) []client.Object {
			return []client.Object{harness.OpenAI(ns, "child", provider.URL, "key"),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "k-e-y"}}}
		}
		ns := family(ctx, 1, func(s *skeinv1.AgentSubagent) { s.Blocking = true }, slow, harness.Answer("done"))
		var all []time.Duration
		for i := range 30 {
			t := start(ctx, ns, fmt.Sprint("p-", i), "parent")
			<-called
			all = append(all, timed(func() {
				Expect(cluster.Client.Delete(ctx, t)).To(Succeed())
				<-stopped
			}))
		}
		floor := plainWrites(ctx, cluster, ns, len(all))
		figure("deletion of a parent to the stop of its running child", "%s (goal 100 ms); %.1f times four plain writes", spread(all), times(all, floor))
	}, SpecTimeout(5*time.Minute))

	It("has 1,000 children", func(ctx SpecContext) {
		ns := family(ctx, 1000, func(s *skeinv1.AgentSubagent) {
			s.ParentCommunication, s.MaxInstances, s.Resumable = skeinv1.CommunicationExplicit, 2000, true
		}, helps, harness.Answer("done"))
		before := timesWith(filepath.Dir(cluster.Kubeconfig))
		t := start(ctx, ns, "parent", "parent")
		took := timed(func() {
			until(ctx, t, func(s *skeinv1.ThreadStatus) bool { return s.ChildCounts != nil && s.ChildCounts.Completed >= 1000 })
		})
		used := timesWith(filepath.Dir(cluster.Kubeconfig)).since(before, 1000)
		plain := func(i int) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("plain-", i)}}
		}
		change := client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"v"}}`))
		floor := manyAtOnce(2000, func(i int) { // as many writes as the children need at least
			Expect(cluster.Client.Create(ctx, plain(i))).To(Succeed())
			Expect(cluster.Client.Patch(ctx, plain(i), change)).To(Succeed())
		})
		figure("1,000 children of one parent", "%s until all are shown as completed (goal 8 s); the same writes alone %s, %.1f times that",
			took.Round(10*time.Millisecond), floor.Round(10*time.Millisecond), float64(took)/float64(floor))
		figure("  processor time of each", "%s", used)
		before = timesWith(filepath.Dir(cluster.Kubeconfig))
		took = timed(func() {
			_, err := cluster.Thread(ns, t.Name).Request(http.MethodPost, "terminate").DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred())
			shown(ctx, cluster, 1001, func(s *skeinv1.ThreadStatus) bool { return s.TerminatedAt != 0 }, client.InNamespace(ns))
		})
		used = timesWith(filepath.Dir(cluster.Kubeconfig)).since(before, 1000)
		figure("termination of a parent with 1,000 children", "%s until all are shown as terminated (goal 10 s)", took.Round(10*time.Millisecond))
		figure("  processor time of each", "%s", used)
		took = timed(func() {
			Expect(cluster.Kubectl(ctx, "-n", ns, "delete", "thread", t.Name)).Error().NotTo(HaveOccurred())
		})
		floor = manyAtOnce(2000, func(i int) { Expect(cluster.Client.Delete(ctx, plain(i))).To(Succeed()) })
		figure("deletion of a parent with 1,000 children", "%s; the deletion of 2,000 plain objects %s, %.1f times that",
			took.Round(10*time.Millisecond), floor.Round(10*time.Millisecond), float64(took)/float64(floor))
	}, SpecTimeout(10*time.Minute))

	It("costs no more for a child after 1,000 others than for the first ones", func(ctx SpecContext) {
		const step = 32 // as many calls as a step of a script has
		var few skeinv1.ScriptStep
		for range step {
			few.ToolCalls = append(few.ToolCalls, call)
		}
		ns := family(ctx, 0, func(s *skeinv1.AgentSubagent) {
			s.ParentCommunication, s.MaxInstances = skeinv1.CommunicationExplicit, 2000
		}, helps, harness.On("^few$", few), skeinv1.ScriptStep{Content: "done", Times: ptr.To[int32](0)})
		t := start(ctx, ns, "parent", "parent")
		children := int32(0)
		// more has the parent start children, and returns what each cost: the time of the manager's processors, and writes to the API.
		more := func(messages int32) (cpu time.Duration, writes float64) {
			GinkgoHelper()
			before, since := timesWith(filepath.Dir(cluster.Kubeconfig)), time.Now()
			for range messages {
				children += step
				Expect(cluster.Thread(ns, t.Name).Say(ctx, "few")).To(Succeed())
				until(ctx, t, func(s *skeinv1.ThreadStatus) bool { return s.ChildCounts != nil && s.ChildCounts.Completed >= children })
			}
			time.Sleep(2 * time.Second) // what is gathered for a second
			after := timesWith(filepath.Dir(cluster.Kubeconfig))
			n := 0
			for _, written := range writesOf(cluster, ns, "parent-", since) {
				n += written
			}
			each := time.Duration(messages * step)
			return (after["manager"] - before["manager"]) / each, float64(n) / float64(each)
		}
		more(1) // what is compiled and cached by the first
		cpu, writes := more(4)
		more(1000 / step)
		cpuThen, writesThen := more(4)
		figure("a child after 1,000 others", "%.2f times the manager's processor time of the first ones (%s, %s), %.2f times their API writes (%.2f, %.2f)",
			float64(cpuThen)/float64(cpu), cpuThen, cpu, writesThen/writes, writesThen, writes)
		Expect(writesThen).To(BeNumerically("<", 1.2*writes))
	}, SpecTimeout(10*time.Minute))
})
