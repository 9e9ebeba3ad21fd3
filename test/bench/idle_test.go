package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/test/harness"
)

const (
	// idleEnv says how many idle Threads there are, and waitingEnv how many of them then wait. The budget is for 100,000 and 10,000, which takes
	// longer than other benches do.
	idleEnv    = "SKEIN_BENCH_IDLE"
	waitingEnv = "SKEIN_BENCH_WAITING"
	// restFor is how long the manager is watched at rest. It is more than the intervals of most of its periodic work.
	restFor = 30 * time.Second
)

// What Threads cost that do nothing: a cluster without a node, and a manager beside it.
var _ = Describe("Idle Threads", Ordered, Label("idle"), func() {
	It("cost memory only", func(ctx SpecContext) {
		n, waiting := numberOf(idleEnv, 10_000), numberOf(waitingEnv, 1000)
		b := newIdleBench(ctx)
		none, floor := residentSet(b.manager.PID()), b.rest()
		figure("no idle Threads: the manager at rest", "%.0f MiB, %s of a processor in a minute", none, floor)
		few := b.grow(ctx, n/10, none)
		many := b.grow(ctx, n, none)
		figure("  a tenfold number at rest", "%.2f times the processor time (goal 1): %s in a minute for %s with a tenth, %s with none",
			float64(many)/float64(few), many, few, floor)
		b.wait(ctx, min(waiting, n))
		load()
	}, SpecTimeout(time.Hour))
})

// numberOf reads a number from the environment.
func numberOf(env string, otherwise int) int {
	GinkgoHelper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), "%s is a number", env)
	return n
}

type idleBench struct {
	cluster *harness.Cluster
	manager *harness.Manager
	metrics string // address
	ns      *corev1.Namespace
	like    *skeinv1.Thread // the first one, which the manager itself has made ready
	planted int
}

func newIdleBench(ctx SpecContext) *idleBench {
	GinkgoHelper()
	cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "idle", Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
	installCRDs(ctx, cluster)
	port, err := scratch.Port()
	Expect(err).NotTo(HaveOccurred())
	b := &idleBench{cluster: cluster, metrics: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ns: &corev1.Namespace{}}
	args := append([]string{"--leader-elect", "--metrics-bind-address=" + b.metrics}, strings.Fields(os.Getenv("SKEIN_BENCH_ARGS"))...)
	b.manager, err = cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: args})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.manager.Stop)
	Expect(b.manager.Start(ctx)).To(Succeed())
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Name: namespace(ctx, cluster)}, b.ns)).To(Succeed())
	create(ctx, cluster, harness.Scripted(b.ns.Name, "model", harness.Calls("wait", map[string]any{"delayMs": 3_600_000})),
		harness.Prompt(b.ns.Name, "prompt", "model", "builtin:wait"), harness.Agent(b.ns.Name, "agent", "prompt"))
	b.like = harness.NewThread(b.ns.Name, "like", "agent")
	create(ctx, cluster, b.like)
	shown(ctx, cluster, 1, func(s *skeinv1.ThreadStatus) bool { return s.Phase == "Idle" }, client.InNamespace(b.ns.Name))
	return b
}

// grow makes as many idle Threads as there are to be, and has the manager begin with them. It returns its processor time in a minute of rest.
func (b *idleBench) grow(ctx SpecContext, n int, none float64) time.Duration {
	GinkgoHelper()
	b.manager.Stop()
	var behind time.Duration
	planting := timed(func() { behind = b.plant(ctx, b.planted, n) })
	b.planted = n
	ready, seen, work := b.start(ctx)
	rest := b.rest()
	resident := residentSet(b.manager.PID())
	figure(fmt.Sprintf("%d idle Threads", n), "the manager %.0f MiB, %.0f at the most (goal 600 with 100,000); %.1f KiB each; planted in %s, of which the API server's cache was behind for %s",
		resident, largestSet(b.manager.PID()), (resident-none)*1024/float64(n), planting.Round(100*time.Millisecond), behind.Round(100*time.Millisecond))
	figure("  the manager again, with them", "ready after %s (goal 30 s with 100,000; start to serving without any: 1 s), all looked at after %s: %s of its processor time each; %.0f statuses written (goal 0)",
		ready.Round(10*time.Millisecond), seen.Round(10*time.Millisecond), (work / time.Duration(n)).Round(time.Microsecond), b.count(ctx, "skein_thread_status_writes_total", nil))
	return rest
}

// start starts the manager, and returns how long it took to serve, and to look at every Thread, and its processor time for both.
func (b *idleBench) start(ctx SpecContext) (ready, seen, work time.Duration) {
	GinkgoHelper()
	began := time.Now()
	Expect(b.manager.Start(ctx)).To(Succeed())
	ready = time.Since(began)
	reconciled := func() float64 {
		return b.count(ctx, "controller_runtime_reconcile_total", map[string]string{"controller": "thread"})
	}
	Eventually(ctx, reconciled).WithPolling(200 * time.Millisecond).WithTimeout(20 * time.Minute).Should(BeNumerically(">=", b.planted+1))
	return ready, time.Since(began), b.used()
}

// used is the processor time of the manager since it began.
func (b *idleBench) used() time.Duration {
	GinkgoHelper()
	return processes()[b.manager.PID()].used
}

// rest returns the manager's processor time in a minute, once it has nothing else to do.
func (b *idleBench) rest() time.Duration {
	GinkgoHelper()
	Eventually(func() time.Duration {
		before := b.used()
		time.Sleep(time.Second)
		return b.used() - before
	}).Should(BeNumerically("<", 100*time.Millisecond))
	before := b.used()
	time.Sleep(restFor)
	return (b.used() - before) * time.Duration(time.Minute/restFor)
}

// wait has so many of the Threads wait for a time, and restarts the manager.
func (b *idleBench) wait(ctx SpecContext, n int) {
	GinkgoHelper()
	before := b.used()
	took := manyAtOnce(n, func(i int) { Expect(b.cluster.Thread(b.ns.Name, idleName(i)).Say(ctx, "wait")).To(Succeed()) })
	shown(ctx, b.cluster, n, func(s *skeinv1.ThreadStatus) bool { return s.Phase == "Waiting" }, client.InNamespace(b.ns.Name))
	work := b.used() - before
	rest, resident := b.rest(), residentSet(b.manager.PID())
	figure(fmt.Sprintf("%d of them wait", n), "the manager %.0f MiB, %s of a processor in a minute (goal: as without); they came to wait with %s of it each, messages sent in %s",
		resident, rest, (work / time.Duration(n)).Round(10*time.Microsecond), took.Round(100*time.Millisecond))
	b.manager.Stop()
	ready, seen, work := b.start(ctx)
	rest, resident = b.rest(), residentSet(b.manager.PID())
	figure("  the manager again, with them", "ready after %s (goal 30 s), all looked at after %s with %s of a processor; %.0f statuses written (goal 0); %.0f MiB, %s in a minute of rest",
		ready.Round(10*time.Millisecond), seen.Round(10*time.Millisecond), work, b.count(ctx, "skein_thread_status_writes_total", nil), resident, rest)
}

// count sums up a counter of the manager over the series with these labels.
func (b *idleBench) count(ctx SpecContext, name string, labels map[string]string) (sum float64) {
	GinkgoHelper()
	for _, m := range scrape(ctx, b.metrics)[name].GetMetric() {
		matching := 0
		for _, l := range m.GetLabel() {
			if labels[l.GetName()] == l.GetValue() {
				matching++
			}
		}
		if matching == len(labels) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func idleName(i int) string { return fmt.Sprintf("idle-%06d", i) }

// plant makes Threads as the manager leaves them when it has made them ready: what it stores, and objects with a finalizer and a status.
// To have it make 100,000 takes the control plane most of an hour, and another bench has what each of them costs. plant returns what
// plantLike does.
func (b *idleBench) plant(ctx SpecContext, from, to int) time.Duration {
	GinkgoHelper()
	rows := make([]*store.Thread, to-from)
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: b.manager.Dir})
	Expect(err).NotTo(HaveOccurred())
	threads := thread.NewService(thread.Options{Store: s})
	manyAtOnce(len(rows), func(i int) {
		n := thread.NewThread{Thread: store.Thread{
			ID: uuid.NewString(), Namespace: b.ns.Name, NamespaceUID: string(b.ns.UID), Name: idleName(from + i), Agent: "agent",
		}}
		var err error
		rows[i], _, err = threads.Create(ctx, n)
		Expect(err).NotTo(HaveOccurred())
	})
	Expect(s.Close()).To(Succeed())
	return plantLike(ctx, b.cluster, "threads", b.like, len(rows), func(i int, meta, stored map[string]any) string {
		row := rows[i]
		meta["uid"] = row.ID
		status := stored["status"].(map[string]any)
		status["threadID"] = row.ID
		status["lastActivityTime"] = time.UnixMicro(row.LastActivityAt).UTC().Format(time.RFC3339)
		return row.Name
	})
}
