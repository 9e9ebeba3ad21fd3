package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	server "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// How many Threads are made, shown and removed in a second, beside the same writes while no manager runs. There is no audit log here,
// because it takes the API server's time too: another bench counts the writes.
var _ = Describe("Threads", Ordered, Label("threads"), func() {
	var b *threadsBench

	BeforeAll(func(ctx SpecContext) {
		cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "threads", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		installCRDs(ctx, cluster)
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: strings.Fields(os.Getenv("SKEIN_BENCH_ARGS"))})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		b = &threadsBench{cluster: cluster, manager: m, ns: namespace(ctx, cluster)}
		create(ctx, cluster, harness.Scripted(b.ns, "model", harness.Echo()), harness.Prompt(b.ns, "prompt", "model"), harness.Agent(b.ns, "agent", "prompt"))
		Expect(m.Start(ctx)).To(Succeed())
		b.warmUp(ctx)
	}, NodeTimeout(10*time.Minute))

	It("answer a message, 500 at once", func(ctx SpecContext) {
		b.measure(ctx, 500, "hello", "goal 200", "", hasAnswered)
	}, SpecTimeout(10*time.Minute))

	It("rest, 5,000 of them", func(ctx SpecContext) {
		b.measure(ctx, 5000, "", "goal 250", " (goal 1.1)", func(s *skeinv1.ThreadStatus) bool {
			return meta.IsStatusConditionTrue(s.Conditions, skeinv1.ConditionReady)
		})
	}, SpecTimeout(20*time.Minute))
})

type threadsBench struct {
	cluster *harness.Cluster
	manager *harness.Manager
	ns      string
	series  int
}

// warmUp makes a Thread that answers a message, and removes it. The API server ends the first watches of kinds that it has just got, and a
// second later the manager watches again.
func (b *threadsBench) warmUp(ctx SpecContext) {
	GinkgoHelper()
	create(ctx, b.cluster, b.thread(0, "hello"))
	shown(ctx, b.cluster, 1, hasAnswered, client.InNamespace(b.ns))
	Expect(b.cluster.Client.Delete(ctx, b.thread(0, ""))).To(Succeed())
	Eventually(ctx, b.left).WithArguments(ctx).Should(BeZero())
}

func hasAnswered(s *skeinv1.ThreadStatus) bool {
	return s.LastRun != nil && s.LastRun.Outcome == skeinv1.RunSucceeded
}

func (b *threadsBench) thread(i int, message string) *skeinv1.Thread {
	return harness.NewThread(b.ns, fmt.Sprintf("t-%d-%d", b.series, i), "agent", func(s *skeinv1.ThreadSpec) { s.Message = message })
}

// measure makes n Threads at once, restarts the manager, and deletes them. goal is of Threads a second, and ofFloor of what they take beside the floor. Then it makes the same writes without a manager: creation and
// status, deletion and the removal of the finalizer.
func (b *threadsBench) measure(ctx SpecContext, n int, message, goal, ofFloor string, is func(*skeinv1.ThreadStatus) bool) {
	GinkgoHelper()
	dir := filepath.Dir(b.cluster.Kubeconfig)
	b.series++
	what := fmt.Sprintf("%d Threads without a message", n)
	if message != "" {
		what = fmt.Sprintf("%d Threads with a message", n)
	}
	before, empty := timesWith(dir), residentSet(b.manager.PID())
	created := make([]time.Time, n)
	var ended map[string]time.Time
	made := timed(func() {
		var watch sync.WaitGroup
		if message != "" { // otherwise nothing is said about each
			watch.Go(func() {
				defer GinkgoRecover()
				ended = shown(ctx, b.cluster, n, is, client.InNamespace(b.ns))
			})
		}
		manyAtOnce(n, func(i int) {
			created[i] = time.Now()
			create(ctx, b.cluster, b.thread(i, message))
		})
		if message == "" {
			shown(ctx, b.cluster, n, is, client.InNamespace(b.ns))
		}
		watch.Wait()
	})
	madeWork := timesWith(dir).since(before, n)
	full := residentSet(b.manager.PID())
	between := b.stages(ctx, created, ended)

	b.manager.Stop()
	again := timed(func() { Expect(b.manager.Start(ctx)).To(Succeed()) })

	example := b.thread(0, message)
	Expect(b.cluster.Client.Get(ctx, client.ObjectKeyFromObject(example), example)).To(Succeed())
	before = timesWith(dir)
	deleted := timed(func() {
		manyAtOnce(n, func(i int) { Expect(b.cluster.Client.Delete(ctx, b.thread(i, message))).To(Succeed()) })
		Eventually(ctx, b.left).WithArguments(ctx).Should(BeZero())
	})
	deletedWork := timesWith(dir).since(before, n)

	b.manager.Stop()
	b.series++
	status := client.RawPatch(types.MergePatchType, harness.Raw(map[string]any{"status": example.Status}).Raw)
	before = timesWith(dir)
	made0 := manyAtOnce(n, func(i int) {
		o := b.thread(i, message)
		create(ctx, b.cluster, o)
		Expect(b.cluster.Client.Status().Patch(ctx, o, status)).To(Succeed())
	})
	made0Work := timesWith(dir).since(before, n)
	before = timesWith(dir)
	deleted0 := b.remove(ctx, n, message)
	deleted0Work := timesWith(dir).since(before, n)
	b.series++
	least := b.leastOperator(ctx, n, message, example.Status)
	Expect(b.manager.Start(ctx)).To(Succeed())

	rate := func(d time.Duration) float64 { return float64(n) / d.Seconds() }
	figure(what, "%.0f a second (%s); the same writes without the manager %.0f a second: %.2f times the time%s", rate(made), goal, rate(made0), float64(made)/float64(made0), ofFloor)
	figure("  by an operator that only writes the status", "%.0f a second: %.2f times the time of the writes alone", rate(least), float64(least)/float64(made0))
	between.print()
	figure("  processor time of each", "%s; without the manager %s", madeWork, made0Work)
	figure("  memory of each in the manager", "%.1f KiB (%.0f MiB, %.0f before)", (full-empty)*1024/float64(n), full, empty)
	figure("  the manager again, with them", "%s from start to serving (goal 1 s)", again.Round(10*time.Millisecond))
	figure("  their deletion", "%.0f a second; the same writes without the manager %.0f: %.2f times the time (goal 1.2)", rate(deleted), rate(deleted0), float64(deleted)/float64(deleted0))
	figure("  processor time of each deletion", "%s; without the manager %s", deletedWork, deleted0Work)
}

// leastOperator makes n Threads at once, whose status is written by an operator that does nothing else, deletes them again, and returns how long
// it took to make them. What the manager takes besides is its own work.
func (b *threadsBench) leastOperator(ctx SpecContext, n int, message string, status skeinv1.ThreadStatus) time.Duration {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(b.cluster.Config, ctrl.Options{Scheme: b.cluster.Client.Scheme(), Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard()})
	Expect(err).NotTo(HaveOccurred())
	Expect(ctrl.NewControllerManagedBy(mgr).Named("least").For(&skeinv1.Thread{}).WithOptions(controller.Options{MaxConcurrentReconciles: 32, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var t skeinv1.Thread
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &t); err != nil || t.Status.Phase != "" {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			before := t.DeepCopy()
			t.Status = status
			return reconcile.Result{}, mgr.GetClient().Status().Patch(ctx, &t, client.MergeFrom(before))
		}))).To(Succeed())
	running, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer stop()
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed())
	})
	Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	took := timed(func() {
		manyAtOnce(n, func(i int) { create(ctx, b.cluster, b.thread(i, message)) })
		shown(ctx, b.cluster, n, func(s *skeinv1.ThreadStatus) bool { return s.Phase != "" }, client.InNamespace(b.ns))
	})
	b.remove(ctx, n, message)
	return took
}

// remove deletes n Threads as their manager does, while it does not run, and returns how long that took.
func (b *threadsBench) remove(ctx SpecContext, n int, message string) time.Duration {
	GinkgoHelper()
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	took := manyAtOnce(n, func(i int) {
		o := b.thread(i, message)
		Expect(b.cluster.Client.Delete(ctx, o)).To(Succeed())
		Expect(b.cluster.Client.Patch(ctx, o, release)).To(Succeed())
	})
	Expect(b.left(ctx)).To(BeZero())
	return took
}

// stages says how long Threads that were created at once waited until they were stored, and until they showed the end of their run. ended has
// the moments when this bench saw that.
func (b *threadsBench) stages(ctx SpecContext, created []time.Time, ended map[string]time.Time) *stages {
	GinkgoHelper()
	s := &stages{}
	for i, at := range created {
		name := b.thread(i, "").Name
		shown, ok := ended[name]
		if !ok {
			continue
		}
		record, run := storedAs(ctx, b.cluster, b.ns, name)
		s.mark("created to stored", at, time.UnixMicro(record.CreatedAt))
		s.mark("stored to the end of the run", time.UnixMicro(record.CreatedAt), time.UnixMicro(run.EndedAt))
		s.mark("run ended to status shown", time.UnixMicro(run.EndedAt), shown)
	}
	return s
}

// left counts the Threads that there are.
func (b *threadsBench) left(ctx SpecContext) (int, error) {
	var l skeinv1.ThreadList
	err := b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns), client.Limit(1))
	return len(l.Items), err
}
