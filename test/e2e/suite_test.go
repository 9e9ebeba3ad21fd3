// Package e2e proves on real pods what only real pods can show. It installs Skein as a user would: images
// in the cluster, config/default applied, agents declared with kubectl.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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

// patience bounds how long something that must happen may take; it is never what a spec measures.
const patience = 2 * time.Minute

const probeImage = "skein.dev/probe:dev"

var cluster *harness.Cluster

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "E2E")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: "e2e", Node: true, GVisor: true, Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(5*time.Minute))
	install(ctx)
	// The gateway is off by default. A person switches it on in this way, too.
	for _, args := range [][]string{
		{"patch", "deployment", "skein-manager", "--type=json", "-p", `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--gateway-bind-address=:8090"}]`},
		{"rollout", "status", "deployment/skein-manager", "--timeout=5m"},
	} {
		_, err := cluster.Kubectl(ctx, append([]string{"-n", harness.SystemNamespace}, args...)...)
		Expect(err).NotTo(HaveOccurred())
	}

	probe := filepath.Join(GinkgoT().TempDir(), "probe")
	build := exec.CommandContext(ctx, "go", "build", "-o", probe, "./test/e2e/probe")
	build.Dir, build.Env = harness.Root(), append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	Expect(cluster.LoadBinary(ctx, probeImage, probe)).To(Succeed())
}, NodeTimeout(30*time.Minute))

var _ = ReportAfterEach(func(r SpecReport) {
	if !r.Failed() || cluster == nil {
		return
	}
	for _, args := range [][]string{
		{"get", "threads,subagents,scheduledeffects,sandboxpools,pods", "-A", "-o", "wide"},
		{"-n", harness.SystemNamespace, "logs", "deploy/skein-manager", "--tail=150"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		out, err := cluster.Kubectl(context.Background(), args...)
		if err != nil {
			out = err.Error()
		}
		AddReportEntry("kubectl", ReportEntryVisibilityFailureOrVerbose, out)
	}
})

// namespace makes one that enforces the restricted Pod Security Standard; it goes when the spec ends, after a look
// at what the spec leaves behind.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	Expect(cluster.Client.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(cluster.Client.Delete(ctx, ns))).To(Succeed())
	}, NodeTimeout(patience))
	DeferCleanup(func(ctx SpecContext) {
		if !CurrentSpecReport().Failed() {
			noLeaks(ctx, ns.Name)
		}
	}, NodeTimeout(5*patience))
	return ns.Name
}

func create(ctx context.Context, objs ...client.Object) {
	GinkgoHelper()
	for _, o := range objs {
		Expect(cluster.Client.Create(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}

// pool keeps so many sandboxes warm and waits until they are.
func pool(ctx context.Context, ns string, warm int32, edit ...func(*skeinv1.SandboxPoolSpec)) *skeinv1.SandboxPool {
	GinkgoHelper()
	p := poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) {
		s.Warm = warm
		for _, f := range edit {
			f(s)
		}
	})
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.Warm).To(Equal(warm))
	}).Should(Succeed())
	return p
}

// poolOf makes the default pool as the spec needs it, of pods that ask for little.
func poolOf(ctx context.Context, ns string, edit func(*skeinv1.SandboxPoolSpec)) *skeinv1.SandboxPool {
	GinkgoHelper()
	p := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: skeinv1.DefaultPoolName}, Spec: skeinv1.SandboxPoolSpec{Warm: 1}}
	p.Spec.MaxWallTime = &metav1.Duration{Duration: 10 * time.Minute} // what is meant to spin spins until the spec ends it
	p.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: harness.Quantity("5m"), corev1.ResourceMemory: harness.Quantity("32Mi")}
	edit(&p.Spec)
	create(ctx, p)
	return p
}

// sandboxes lists the pool's pods that are not on their way out.
func sandboxes(ctx context.Context, g Gomega, ns string, labels client.MatchingLabels) []corev1.Pod {
	var l corev1.PodList
	g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns), client.HasLabels{skeinv1.LabelPool}, labels)).To(Succeed())
	var live []corev1.Pod
	for _, p := range l.Items {
		if p.DeletionTimestamp.IsZero() {
			live = append(live, p)
		}
	}
	return live
}

func claimed() client.MatchingLabels {
	return client.MatchingLabels{skeinv1.LabelSandboxState: "claimed"}
}

// thread declares an agent over a script, with a tool or none, and a thread, and waits until it is ready.
func thread(ctx context.Context, ns, name string) *harness.Thread {
	GinkgoHelper()
	create(ctx, harness.NewThread(ns, name, "agent"))
	t := cluster.Thread(ns, name)
	Eventually(ctx, func(g Gomega) {
		o, err := t.Object(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
	}).Should(Succeed())
	return t
}

func settled(ctx context.Context, t *harness.Thread, runs int) []runtimev1.Message {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		rs, err := t.Runs(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(rs)).To(BeNumerically(">=", runs))
		for _, r := range rs {
			g.Expect(r.Ended()).To(BeTrue())
		}
	}).Should(Succeed())
	ms, err := t.Messages(ctx)
	Expect(err).NotTo(HaveOccurred())
	return ms
}

func echo(ctx context.Context, ns string) {
	create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
}
