package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("Sandboxes on gVisor", Label("COD-08"), func() {
	DescribeTable("run code on a kernel of their own, with the same limits and locks", func(ctx SpecContext, engine skeinv1.SandboxEngine) {
		if engine == skeinv1.SandboxEngineV8 {
			loadV8(ctx)
		}
		ns := namespace(ctx)
		pool(ctx, ns, 1, func(s *skeinv1.SandboxPoolSpec) {
			s.Engine, s.RuntimeClassName, s.MaxWallTime = engine, ptr.To("gvisor"), &metav1.Duration{Duration: 2 * time.Minute}
		})
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")

		By("computing")
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: `
export default (): string => [...Array(10).keys()].map((n: number) => n ** 2).join()`})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON(`"0,1,4,9,16,25,36,49,64,81"`))

		By("ending what does not end, and what takes too much memory")
		r, err = t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => { for (;;); }", WallTime: &metav1.Duration{Duration: 500 * time.Millisecond}})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeTerminated), "%+v", r.Error)
		r, err = t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => { const a = []; for (;;) a.push(new Array(1e6).fill(1)); }", MemoryLimitBytes: 16 << 20, WallTime: &metav1.Duration{Duration: 2 * time.Minute}})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeMemory), "%+v", r.Error)

		By("being on gVisor")
		pods := sandboxes(ctx, Default, ns, claimed())
		Expect(pods).To(HaveLen(1), "one pod has served all of it")
		pod := pods[0]
		Expect(pod.Spec.RuntimeClassName).To(HaveValue(Equal("gvisor")))
		Expect(pod.Spec.Containers[0].Args).NotTo(ContainElement(ContainSubstring("unconfined")), "its children are under their own filter")
		logs, err := cluster.Kubectl(ctx, "-n", ns, "logs", pod.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(logs).To(And(ContainSubstring("listening"), Not(ContainSubstring("images of engines"))), "the supervisor reports when it cannot make them")
		_, err = cluster.Kubectl(ctx, "-n", ns, "debug", pod.Name, "--image="+probeImage, "--image-pull-policy=Never", "--profile=restricted", "--container=probe", "--quiet", "--", "/probe", "kernel")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "-n", ns, "logs", pod.Name, "-c", "probe")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(ContainSubstring("gVisor"), "dmesg names the kernel")
			g.Expect(out).To(ContainSubstring("Seccomp:"))
		}).Should(Succeed())
	},
		Entry("the default engine", SpecTimeout(12*time.Minute), skeinv1.SandboxEngineQuickJS),
		Entry("and V8, which makes machine code", SpecTimeout(12*time.Minute), skeinv1.SandboxEngineV8))
})
