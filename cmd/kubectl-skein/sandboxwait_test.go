package main

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A command whose call waits for a sandbox", Label("TOL-01", "END-01"), func() {
	var c command
	var st *thread.State
	var release func()

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		commands, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		c = command{ctx: commands, ns: ns}
		release = echoes.hold()
		DeferCleanup(release)
	})

	// starting creates a sandbox pod that a thread has claimed.
	starting := func(ctx context.Context, name, threadID string) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: name, Labels: map[string]string{skeinv1.LabelThreadID: threadID}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "none"}}},
		}
		Expect(env.Client.Create(ctx, pod)).To(Succeed())
		return pod
	}
	// show writes the status that the scheduler and the kubelet would.
	show := func(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) {
		GinkgoHelper()
		pod.Status = status
		Expect(env.Client.Status().Update(ctx, pod)).To(Succeed())
	}

	DescribeTable("says why whenever that changes, and prints the result alone",
		func(ctx SpecContext, out string, args ...string) {
			starting(ctx, "somebody-elses", "0198f000-0000-7000-8000-000000000000")
			pod := starting(ctx, "sandbox", st.ID())
			c.stdin = "slow()"
			s := c.start(args...)
			Eventually(s.err.String).Should(Equal("thread/hello waits: SandboxStarting: pod sandbox is not ready yet\n"))
			show(ctx, pod, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}})
			Eventually(s.err.String).Should(HaveSuffix("thread/hello waits: SandboxStarting: pod sandbox: Unschedulable: 0/3 nodes are available\n"))
			show(ctx, pod, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "sandbox", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}})
			Eventually(s.err.String).Should(HaveSuffix("thread/hello waits: SandboxStarting: pod sandbox: ErrImagePull: no such image\n"))
			show(ctx, pod, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
			Eventually(s.err.String).Should(HaveSuffix("thread/hello goes on\n"))
			Expect(s.code).NotTo(Receive())
			release()
			Eventually(s.code).Should(Receive(Equal(0)))
			Expect(s.out.String()).To(ContainSubstring(out))
			Expect(s.out.String()).NotTo(ContainSubstring("waits"))
			Expect(strings.Count(s.err.String(), "\n")).To(Equal(4), s.err.String())
		},
		Entry("tool", SpecTimeout(2*patience), "slow({})", "tool", "hello", "slow"),
		Entry("endpoint", SpecTimeout(2*patience), `slow`, "endpoint", "hello", "/slow"),
		Entry("code", SpecTimeout(2*patience), `"slow"`, "code", "hello", "-f", "-"))

	It("says so when it may not watch the pods", Label("K8S-04"), func(ctx SpecContext) {
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "caller")
		_, err := env.Kubeconfig("caller", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Allow(ctx, c.ns, "caller", rbacv1.PolicyRule{
			APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads", "threads/tools"}, Verbs: []string{"get", "create"},
		})).To(Succeed())
		s := c.start("tool", "hello", "slow")
		Eventually(s.err.String).Should(ContainSubstring("You may not watch pods"))
		release()
		Eventually(s.code).Should(Receive(Equal(0)))
		Expect(s.out.String()).To(Equal("slow({})\n"))
	}, SpecTimeout(2*patience))
})
