package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/test/harness"
)

// Effects that are due: how late their handlers begin, how many a second run, and what they cost, beside CronJobs of
// the same cluster.
var _ = Describe("Effects", Ordered, Label("effects"), func() {
	var b *effectBench

	BeforeAll(func(ctx SpecContext) {
		if os.Getuid() != 0 {
			Skip("a node needs root on Linux: the figures of effects are left out")
		}
		cluster, err := harness.Up(ctx, harness.ClusterOptions{Name: "bench-effects", Node: true, AuditLog: true, Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(5*time.Minute))
		Expect(cluster.Install(ctx)).To(Succeed())
		b = &effectBench{cluster: cluster, ns: namespace(ctx, cluster)}
		b.prepare(ctx)
	}, NodeTimeout(20*time.Minute))

	AfterEach(func() { load() })

	It("are due at once", func(ctx SpecContext) { b.storm(ctx, 1000) }, SpecTimeout(10*time.Minute))
	It("fire on schedules, beside CronJobs", func(ctx SpecContext) { b.cron(ctx, 5, 2) }, SpecTimeout(10*time.Minute))
})

// load prints how busy the machine was.
func load() {
	GinkgoHelper()
	text, err := os.ReadFile("/proc/loadavg")
	Expect(err).NotTo(HaveOccurred())
	figure("  load average over 1, 5 and 15 minutes", "%s", strings.Join(strings.Fields(string(text))[:3], " "))
}

const effectThreads = 10

// effectBench measures effects. pending is how many are due much later.
type effectBench struct {
	cluster *harness.Cluster
	ns      string
	threads []*skeinv1.Thread
	manager *harness.Manager // nil where it is a pod
	pending int
	base    float64 // memory of the manager before there were any
	series  int
}

// The handlers note first of all when they began.
const (
	handlerStart = `import { defineEffect } from '@standardagents/builder';
import { z } from 'zod';
const began = Date.now();
export default defineEffect({ args: z.object({ n: z.number() }), execute: async (state, args) => { await state.setValue('began-' + args.n, began) } });`
	handlerZod = `import { defineEffect } from '@standardagents/builder';
import { z } from 'zod';
export default defineEffect({ args: z.object({ n: z.number() }), execute: (state, args) => args.n });`
	handlerLog = `const began = Date.now(); export default () => { console.log('began ' + began) }`
)

func (b *effectBench) prepare(ctx SpecContext) {
	GinkgoHelper()
	if b.manager == nil {
		create(ctx, b.cluster, (&sandboxBench{ns: b.ns}).poolOf(effectThreads))
	}
	create(ctx, b.cluster, harness.Scripted(b.ns, "model", harness.Echo()), harness.Prompt(b.ns, "prompt", "model"), harness.Agent(b.ns, "agent", "prompt"),
		harness.Effect(b.ns, "start", handlerStart), harness.Effect(b.ns, "zod", handlerZod), harness.Effect(b.ns, "log", handlerLog))
	for i := range effectThreads {
		o := harness.NewThread(b.ns, fmt.Sprintf("t-%d", i), "agent")
		create(ctx, b.cluster, o)
		t := b.cluster.Thread(b.ns, o.Name)
		Eventually(ctx, func(g Gomega) {
			r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"}) // claims its sandbox
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Status).To(Equal(runtimev1.CodeSuccess))
		}).Should(Succeed())
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		b.threads = append(b.threads, o)
	}
	b.base = b.memory(ctx)
}

// effect returns a one-time effect as code schedules it.
func (b *effectBench) effect(name, effect string, n int, due time.Time) *skeinv1.ScheduledEffect {
	t := b.threads[n%len(b.threads)]
	return &skeinv1.ScheduledEffect{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name, Labels: map[string]string{skeinv1.LabelThreadID: t.ThreadID()},
			Annotations:     map[string]string{skeinv1.AnnotationIdempotencyKey: name},
			OwnerReferences: []metav1.OwnerReference{objects.ThreadOwner(t.Name, string(t.UID))}},
		Spec: skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Effect: effect, Args: harness.Raw(map[string]any{"n": n}),
			At: ptr.To(skeinv1.NewTimestamp(due)), TTLSecondsAfterFinished: ptr.To(int32(5))},
	}
}

// createAll creates objects, so many at a time.
func (b *effectBench) createAll(ctx context.Context, at, n int, object func(i int) *skeinv1.ScheduledEffect) {
	GinkgoHelper()
	next := make(chan int)
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			defer GinkgoRecover()
			for i := range next {
				create(ctx, b.cluster, object(i))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// oneTime prints what one-time effects have cost until they were deleted. It asks for each by its name: a list of 100,000 pending ones takes
// the API server longer than a request may.
func (b *effectBench) oneTime(ctx SpecContext, prefix string, n int, number func(i int) int, began time.Time) {
	GinkgoHelper()
	for i := range n {
		key := client.ObjectKey{Namespace: b.ns, Name: fmt.Sprint(prefix, number(i))}
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(b.cluster.Client.Get(ctx, key, &skeinv1.ScheduledEffect{}))
		}).WithPolling(2 * time.Second).Should(BeTrue())
	}
	b.writes("API writes of a one-time effect", prefix, n, began, "goal 2; not counted: its creation")
}

// writes prints what was written about objects, apart from their creation by the bench.
func (b *effectBench) writes(name, prefix string, n int, began time.Time, goal string) {
	GinkgoHelper()
	all, err := b.cluster.Writes("", b.ns, began)
	Expect(err).NotTo(HaveOccurred())
	count := 0
	kinds := map[string]int{}
	for _, w := range all {
		if strings.HasPrefix(w.Name, prefix) && (w.Verb != "create" || w.Resource != "scheduledeffects" && w.Resource != "cronjobs") {
			count++
			kinds[w.Verb+" "+w.Resource]++
		}
	}
	figure(name, "%.2f (%s) %v", float64(count)/float64(n), goal, kinds)
}

// storm is many effects at one time, whose handlers use zod.
func (b *effectBench) storm(ctx SpecContext, n int) {
	GinkgoHelper()
	began := time.Now()
	due := began.Add(time.Duration(n)*15*time.Millisecond + 5*time.Second).Truncate(time.Millisecond)
	b.createAll(ctx, 8, n, func(i int) *skeinv1.ScheduledEffect {
		o := b.effect(fmt.Sprintf("storm-%d", i), "zod", i, due)
		o.Spec.TTLSecondsAfterFinished = ptr.To(int32(60))
		return o
	})
	figure(fmt.Sprintf("%d effects are created", n), "in %s", time.Since(began).Round(10*time.Millisecond))
	time.Sleep(time.Until(due))
	pid := b.process(ctx, Default)
	before := timesOf(pid)
	for i := n - 1; i >= 0; i -= max(n/20, 1) { // they end in any order, and to ask for each would be work of the cluster, too
		Eventually(ctx, func(g Gomega) {
			l := b.firings(ctx, g, fmt.Sprintf("storm-%d", i))
			g.Expect(l.Firings).To(HaveLen(1))
			g.Expect(l.Firings[0].EndedAt).NotTo(BeZero())
		}).WithPolling(200 * time.Millisecond).Should(Succeed())
	}
	used := timesOf(pid).since(before, n)
	var recorded, started []time.Duration
	var last time.Time
	for i := n - 1; i >= 0; i-- { // one of the last to end comes first, so that this asks little meanwhile
		var f runtimev1.Firing
		Eventually(ctx, func(g Gomega) {
			l := b.firings(ctx, g, fmt.Sprintf("storm-%d", i))
			g.Expect(l.Firings).To(HaveLen(1))
			f = l.Firings[0]
			g.Expect(f.Status).To(Equal("succeeded"), f.Error)
		}).WithPolling(500 * time.Millisecond).Should(Succeed())
		recorded = append(recorded, time.UnixMicro(f.FiredAt).Sub(due))
		started = append(started, time.UnixMicro(f.StartedAt).Sub(due))
		if at := time.UnixMicro(f.EndedAt); at.After(last) {
			last = at
		}
	}
	figure(fmt.Sprintf("%d due at once: recorded", n), "%s  worst %s", spread(recorded), round(slices.Max(recorded)))
	figure("  claimed for their handlers", "%s  worst %s", spread(started), round(slices.Max(started)))
	figure("  handlers a second, with zod", "%.0f (goal 150)", float64(n)/last.Sub(due).Seconds())
	figure("  processor time of each until the last ended", "%s", used)
	time.Sleep(3 * time.Second) // the last statuses
	b.writes("  API writes of each, its deletion not counted", "storm-", n, began, "goal 2 with it")
}

func (b *effectBench) firings(ctx SpecContext, g Gomega, name string) (l runtimev1.FiringList) {
	rest, err := harness.RuntimeREST(b.cluster.Config)
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := rest.Get().AbsPath("/apis/runtime.skein.dev/v1alpha1/namespaces", b.ns, "firings", name).DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(raw, &l)).To(Succeed())
	return l
}

// cron fires schedules of every minute beside CronJobs of every minute.
func (b *effectBench) cron(ctx SpecContext, each, minutes int) {
	GinkgoHelper()
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 20*time.Second)))
	began := time.Now()
	first := began.Truncate(time.Minute).Add(time.Minute)
	for i := range each {
		create(ctx, b.cluster, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: fmt.Sprintf("cron-%d", i)},
			Spec: skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: b.threads[i].Name}, Effect: "log", Schedules: []string{"* * * * *"}}})
	}
	b.cronJobs(ctx, each)
	var called []time.Duration
	for m := range minutes {
		due := first.Add(time.Duration(m) * time.Minute)
		for i := range each {
			Eventually(ctx, func(g Gomega) {
				l := b.firings(ctx, g, fmt.Sprintf("cron-%d", i))
				at := slices.IndexFunc(l.Firings, func(f runtimev1.Firing) bool { return f.Due == due.UnixMicro() && f.EndedAt != 0 })
				g.Expect(at).NotTo(Equal(-1))
				called = append(called, time.UnixMicro(l.Firings[at].StartedAt).Sub(due))
			}).Should(Succeed())
		}
	}
	figure("cron: due → claimed for the handler", "%s  worst %s, %d at once", spread(called), round(slices.Max(called)), each)
	b.pods(ctx, first, each, minutes)
	time.Sleep(15 * time.Second) // status is coalesced
	b.writes("API writes of a cron firing", "cron-", each*minutes, began.Add(10*time.Second), "goal 1")
	b.writes("API writes of a CronJob's job, kubelet included", "job-", each*minutes, began.Add(10*time.Second), "for comparison")
	Expect(b.cluster.Client.DeleteAllOf(ctx, &batchv1.CronJob{}, client.InNamespace(b.ns), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	for i := range each {
		Expect(b.cluster.Client.Delete(ctx, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: fmt.Sprintf("cron-%d", i)}})).To(Succeed())
	}
}

const cronImage = "skein.dev/sandbox:dev"

// cronJobs creates CronJobs whose program prints its help and ends.
func (b *effectBench) cronJobs(ctx SpecContext, each int) {
	GinkgoHelper()
	for i := range each {
		o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: fmt.Sprintf("job-%d", i)}, Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}
		pod := &o.Spec.JobTemplate.Spec.Template.Spec
		pod.RestartPolicy, pod.AutomountServiceAccountToken = corev1.RestartPolicyNever, ptr.To(false)
		pod.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Containers = []corev1.Container{{Name: "c", Image: cronImage, ImagePullPolicy: corev1.PullNever, Args: []string{"--help"}, SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}
		create(ctx, b.cluster, o)
	}
}

// pods prints how late the containers of CronJobs began. The kubelet tells whole seconds only.
func (b *effectBench) pods(ctx SpecContext, first time.Time, each, minutes int) {
	GinkgoHelper()
	var began, ended []time.Duration
	Eventually(ctx, func(g Gomega) {
		began, ended = nil, nil
		var l corev1.PodList
		g.Expect(b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns), client.HasLabels{"job-name"})).To(Succeed())
		for i := range l.Items {
			name := l.Items[i].Labels["job-name"]
			minute, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64)
			g.Expect(err).NotTo(HaveOccurred())
			due := time.Unix(minute*60, 0)
			if status := l.Items[i].Status.ContainerStatuses; due.Sub(first) < time.Duration(minutes)*time.Minute && len(status) == 1 && status[0].State.Terminated != nil {
				began = append(began, status[0].State.Terminated.StartedAt.Sub(due))
				ended = append(ended, status[0].State.Terminated.FinishedAt.Sub(due))
			}
		}
		g.Expect(len(began)).To(BeNumerically(">=", each*minutes))
	}).Should(Succeed())
	figure("  CronJob: due → container's start", "p50 %s  worst %s (n=%d, in whole seconds)", quantile(began, .5), slices.Max(began), len(began))
	figure("  CronJob: due → container's end", "p50 %s  worst %s", quantile(ended, .5), slices.Max(ended))
}

// process returns the manager's.
func (b *effectBench) process(ctx context.Context, g Gomega) int {
	if b.manager != nil {
		return b.manager.PID()
	}
	var pods corev1.PodList
	g.Expect(b.cluster.Client.List(ctx, &pods, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})).To(Succeed())
	g.Expect(pods.Items).To(HaveLen(1))
	pid, err := b.cluster.PodProcess(pods.Items[0].UID, "/manager", "--leader-elect")
	g.Expect(err).NotTo(HaveOccurred())
	return pid
}

// memory is the resident set of the manager's process, in MiB.
func (b *effectBench) memory(ctx context.Context) float64 {
	GinkgoHelper()
	return residentSet(b.process(ctx, Default))
}
