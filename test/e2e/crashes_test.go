package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Crashes", Label("COD-09"), func() {
	It("for want of memory end the code and not the sandbox, and a killed sandbox fails the call clearly", Label("COD-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		spinner(ctx, ns)
		t := thread(ctx, ns, "thread")
		serves(ctx, t)
		pod := podOf(ctx, ns, "thread")

		By("leaving the pod less memory than the engine may have: the kernel kills the largest process, which is the code's")
		state, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		lift := func() {}
		r, err := state.Thread(t.Namespace, t.Name).RunCode(ctx, `
export default async () => { await starve(); const kept = []; for (let i = 0; i < 800; i++) kept.push(new Uint8Array(64 * 1024).fill(i + 1)); return kept.length; }`, runtimeclient.CodeOptions{
			// Only now, when the child that takes this one's place is there: two that want memory at once may both be killed
			// for it, or the first and then the supervisor.
			Globals: map[string]any{"starve": func() {
				defer GinkgoRecover()
				// The supervisor, the compiler of runs, this child, and those that are ready: for runs, and for definition code.
				lift = starve(pod, 1+1+1+2*supervisor.Defaults().Prefork, 36<<20)
			}},
		}).Wait(ctx)
		lift()
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeMemory), "%+v", r)
		Expect(r.Error.Message).To(ContainSubstring("ran out of memory"))
		serves(ctx, t)
		Expect(podOf(ctx, ns, "thread").UID).To(Equal(pod.UID), "its sandbox goes on")

		By("killing the supervisor, as the kernel would with nothing else to kill")
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() (string, error) { return t.Value(ctx, "spinning") }).Should(MatchJSON("true"))
		Expect(syscall.Kill(supervisorProcess(pod), syscall.SIGKILL)).To(Succeed())
		failedCall(ctx, t)
		serves(ctx, t)
		Expect(podOf(ctx, ns, "thread").UID).NotTo(Equal(pod.UID))
	}, SpecTimeout(12*time.Minute))

	It("of the manager during claims leave no unused pod", Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) {
			// Long enough that none idles for it before the manager is killed.
			s.Warm, s.IdleTimeout = 2, &metav1.Duration{Duration: 30 * time.Second}
		})
		create(ctx,
			harness.CodeTool(ns, "work", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { for (let i = 0; i < 20; i++) await state.setValue('step', i); return 'worked'; } });`, nil),
			harness.Scripted(ns, "model", harness.On("go", harness.Calls("work", map[string]any{})), harness.After("work", harness.Answer("went on"))),
			harness.Prompt(ns, "prompt", "model", "work"), harness.Agent(ns, "agent", "prompt"))
		threads := make([]*harness.Thread, 5)
		for i := range threads {
			threads[i] = thread(ctx, ns, fmt.Sprintf("t%d", i))
		}
		Eventually(ctx, func(g Gomega) {
			g.Expect(sandboxes(ctx, g, ns, client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})).To(HaveEach(Satisfy(func(p corev1.Pod) bool { return sandboxpod.IsReady(&p) })))
		}).Should(Succeed())

		By("killing the manager when the first pods are claimed")
		watch, err := cluster.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(ns), claimed())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watch.Stop)
		for _, t := range threads {
			Expect(t.Say(ctx, "go")).To(Succeed())
		}
		Eventually(ctx, watch.ResultChan()).Should(Receive())
		manager := managerProcess(ctx)
		Expect(syscall.Kill(manager, syscall.SIGKILL)).To(Succeed())
		Expect(sandboxes(ctx, Default, ns, claimed())).NotTo(BeEmpty())
		Expect(threads[0].Delete(ctx)).To(Succeed(), "and one that loses its thread while nobody looks")

		By("waiting until the next manager has ended the runs and deleted the idle pods")
		Eventually(ctx, func(g Gomega) {
			next, err := cluster.PodProcess(managerPod(ctx, g).UID, managerCommand...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(next).NotTo(Equal(manager))
			for _, t := range threads[1:] {
				rs, err := t.Runs(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(rs).To(HaveExactElements(Satisfy(func(r runtimev1.Run) bool { return r.Ended() })))
			}
		}).WithTimeout(3 * patience).Should(Succeed())
		for _, t := range threads[1:] {
			ms, err := t.Messages(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(*ms[len(ms)-1].Content).To(Equal("went on"))
		}
		Eventually(ctx, func(g Gomega) {
			pods := everySandbox(ctx, g, ns)
			g.Expect(pods).To(HaveLen(2))
			g.Expect(pods).To(HaveEach(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, sandboxpod.Warm))))
		}).Should(Succeed())
	}, SpecTimeout(12*time.Minute))

	It("of a node take its sandboxes from it within two minutes, and they come back with it", Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		p := poolOf(ctx, ns, func(s *skeinv1.SandboxPoolSpec) { s.MaxWallTime = &metav1.Duration{Duration: 10 * time.Minute} })
		says(ctx, p, skeinv1.ReasonWarm)
		spinner(ctx, ns)
		_, pod := spinning(ctx, ns, "thread")
		kubelet, err := cluster.Kubelet()
		Expect(err).NotTo(HaveOccurred())
		wake := func() { Expect(syscall.Kill(kubelet, syscall.SIGCONT)).To(Succeed()) }
		Expect(syscall.Kill(kubelet, syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(wake)
		began := time.Now()
		Eventually(ctx, func(g Gomega) {
			unreachable(ctx, g, pod.Spec.NodeName)
			left := map[string]bool{}
			for _, p := range everySandbox(ctx, g, ns) {
				left[string(p.UID)] = true
			}
			g.Expect(left).NotTo(HaveKey(string(pod.UID)), "nobody has confirmed its end, and nobody has to")
		}).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(Succeed())
		GinkgoWriter.Printf("the sandbox was given up %s after its node\n", time.Since(began).Round(time.Second))
		says(ctx, p, skeinv1.ReasonUnschedulable)

		By("the node coming back")
		wake()
		says(ctx, p, skeinv1.ReasonWarm)
		t := cluster.Thread(ns, "thread")
		Eventually(ctx, func() error { _, err := t.Runs(ctx); return err }).Should(Succeed(), "the manager's pod is ready again")
		failedCall(ctx, t)
		serves(ctx, t)
	}, SpecTimeout(15*time.Minute))
})

// unreachable does to a node that is not heard of any more what the cluster's own controller does, but not where no node
// is left: there it takes itself for cut off. It takes the taint away again when the node comes back.
func unreachable(ctx context.Context, g Gomega, name string) {
	var n corev1.Node
	g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &n)).To(Succeed())
	g.Expect(n.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionUnknown))))
	taint := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		return
	}
	before := n.DeepCopy()
	n.Spec.Taints = append(n.Spec.Taints, taint)
	g.Expect(cluster.Client.Patch(ctx, &n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
}

// managerCommand begins the command line of the manager, and of nothing else in its pod.
var managerCommand = []string{"/manager", "--leader-elect"}

func managerPod(ctx context.Context, g Gomega) corev1.Pod {
	var l corev1.PodList
	g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})).To(Succeed())
	g.Expect(l.Items).To(HaveLen(1))
	return l.Items[0]
}

// managerProcess is the id of the manager.
func managerProcess(ctx context.Context) int {
	GinkgoHelper()
	pid, err := cluster.PodProcess(managerPod(ctx, Default).UID, managerCommand...)
	Expect(err).NotTo(HaveOccurred())
	return pid
}

func supervisorProcess(pod corev1.Pod) int {
	GinkgoHelper()
	pid, err := cluster.PodProcess(pod.UID, "/sandbox", "--listen=:8443")
	Expect(err).NotTo(HaveOccurred())
	return pid
}

// starve leaves the pod only so much memory beyond what it has when so many processes are there and at rest; lift gives it back
// what it had.
func starve(pod corev1.Pod, processes int, more int64) (lift func()) {
	GinkgoHelper()
	dir, limit, used := memoryGroup(supervisorProcess(pod))
	read := func(file string) string {
		GinkgoHelper()
		raw, err := os.ReadFile(filepath.Join(dir, file))
		Expect(err).NotTo(HaveOccurred())
		return strings.TrimSpace(string(raw))
	}
	write := func(value string) {
		GinkgoHelper()
		Expect(os.WriteFile(filepath.Join(dir, limit), []byte(value), 0)).To(Succeed())
	}
	had := read(limit)
	// Children that are being started have yet to take theirs: with it, it would be the supervisor that is the largest.
	var looks []int64
	Eventually(func(g Gomega) {
		bytes, err := strconv.ParseInt(read(used), 10, 64)
		g.Expect(err).NotTo(HaveOccurred())
		looks = append(looks, bytes)
		if all, busy := groupProcesses(dir); len(all) != processes || len(busy) > 0 {
			looks = nil
			g.Expect(all).To(HaveLen(processes))
			g.Expect(busy).To(BeEmpty(), "the pod comes to rest")
		}
		last := looks[max(0, len(looks)-10):]
		g.Expect(last).To(HaveLen(10))
		g.Expect(slices.Max(last)-slices.Min(last)).To(BeNumerically("<", 1<<20), "the pod comes to rest")
	}).WithPolling(100 * time.Millisecond).Should(Succeed())
	write(strconv.FormatInt(looks[len(looks)-1]+more, 10))
	return func() { GinkgoHelper(); write(had) }
}

// groupProcesses gives the processes of a cgroup, and what of them has a processor, or waits for one or for the disk.
func groupProcesses(dir string) (all, busy []string) {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	Expect(err).NotTo(HaveOccurred())
	all = strings.Fields(string(raw))
	for _, pid := range all {
		threads, _ := filepath.Glob(filepath.Join("/proc", pid, "task", "*", "stat"))
		for _, stat := range threads {
			line, _ := os.ReadFile(stat) // none when it has just ended
			after := line[bytes.LastIndexByte(line, ')')+1:]
			if state := strings.Fields(string(after)); len(state) > 0 && (state[0] == "R" || state[0] == "D") {
				busy = append(busy, strings.TrimSpace(string(line[:len(line)-len(after)])))
			}
		}
	}
	return all, busy
}

// memoryGroup gives the folder of a process's memory cgroup, and the files in it that hold limit and use.
func memoryGroup(pid int) (dir, limit, used string) {
	GinkgoHelper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	Expect(err).NotTo(HaveOccurred())
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		f := strings.SplitN(line, ":", 3)
		if f[1] == "memory" {
			return filepath.Join("/sys/fs/cgroup/memory", f[2]), "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		if f[0] == "0" && len(raw) == len(line)+1 {
			return filepath.Join("/sys/fs/cgroup", f[2]), "memory.max", "memory.current"
		}
	}
	Fail("no memory cgroup: " + string(raw))
	return "", "", ""
}
