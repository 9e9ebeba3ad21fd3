package e2e

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Sandboxes", func() {
	It("are pods under the restricted Pod Security Standard", Label("COD-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		err := cluster.Client.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lax"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: probeImage}}}})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "the namespace enforces the standard: %v", err)

		pool(ctx, ns, 1)
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default (): number => 6 * 7"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(r.Result).To(MatchJSON("42"))

		pods := sandboxes(ctx, Default, ns, claimed())
		Expect(pods).To(HaveLen(1))
		spec := pods[0].Spec
		Expect(spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
		Expect(spec.EnableServiceLinks).To(HaveValue(BeFalse()))
		Expect(spec.HostNetwork || spec.HostPID || spec.HostIPC).To(BeFalse())
		Expect(spec.Containers).To(HaveLen(1))
		sc, psc := spec.Containers[0].SecurityContext, spec.SecurityContext
		Expect(sc.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(sc.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(sc.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
		Expect(ptr.Deref(psc.RunAsNonRoot, false) || ptr.Deref(sc.RunAsNonRoot, false)).To(BeTrue())
		Expect(psc.SeccompProfile).To(HaveField("Type", corev1.SeccompProfileTypeRuntimeDefault))
		Expect(spec.Containers[0].Resources.Limits).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory)))
		for _, v := range spec.Volumes {
			Expect(v.Projected).To(BeNil(), "no token")
			Expect(v.HostPath).To(BeNil())
		}
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods[0].OwnerReferences).To(ContainElement(HaveField("UID", o.UID)))
	}, SpecTimeout(12*time.Minute))

	It("reach neither the API server nor DNS nor another pod", Label("COD-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		echo(ctx, ns)
		t := thread(ctx, ns, "thread")
		_, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
		Expect(err).NotTo(HaveOccurred())
		pod := sandboxes(ctx, Default, ns, claimed())[0]

		neighbour := probePod(ns, "neighbour", "serve")
		create(ctx, neighbour)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(neighbour), neighbour)).To(Succeed())
			g.Expect(neighbour.Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed())
		var api, dns corev1.Service
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kubernetes"}, &api)).To(Succeed())
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns)).To(Succeed())
		targets := []string{
			"tcp=" + api.Spec.ClusterIP + ":443",
			"dns=" + dns.Spec.ClusterIP + ":53/kubernetes.default.svc.cluster.local",
			"tcp=" + neighbour.Status.PodIP + ":8080",
		}

		By("reaching all of them from an ordinary pod, so that the probe is known to work")
		free := probePod(ns, "free", append([]string{"await"}, targets...)...)
		create(ctx, free)
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "-n", ns, "logs", "free")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(out, " open\n")).To(Equal(len(targets)), out)
		}).Should(Succeed())

		By("reaching none of them from the sandbox's own network")
		_, err = cluster.Kubectl(ctx, append([]string{"-n", ns, "debug", pod.Name, "--image=" + probeImage, "--image-pull-policy=Never", "--profile=restricted", "--container=probe", "--quiet", "--"}, append([]string{"/probe"}, targets...)...)...)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "-n", ns, "logs", pod.Name, "-c", "probe")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(out, " closed: ")).To(Equal(len(targets)), out)
		}).Should(Succeed())
	}, SpecTimeout(12*time.Minute))

	It("are never shared by two threads, and kept by one", Label("COD-08", "COD-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 2)
		echo(ctx, ns)
		owners := map[string]string{} // pod → thread
		for round := range 2 {
			for i := range 4 {
				name := fmt.Sprintf("t%d", i)
				var t *harness.Thread
				if round == 0 {
					t = thread(ctx, ns, name)
				} else {
					t = cluster.Thread(ns, name)
				}
				r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
				Expect(err).NotTo(HaveOccurred())
				Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
			}
			pods := sandboxes(ctx, Default, ns, claimed())
			Expect(pods).To(HaveLen(4), "one each, and a second call takes no second pod")
			for _, p := range pods {
				Expect(p.OwnerReferences).To(HaveLen(1))
				if was, ok := owners[p.Name]; ok {
					Expect(p.OwnerReferences[0].Name).To(Equal(was))
				}
				owners[p.Name] = p.OwnerReferences[0].Name
			}
		}
		Expect(owners).To(HaveLen(4))
	}, SpecTimeout(12*time.Minute))

	It("that are killed under a run make the call fail clearly, and the run goes on", Label("COD-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		spinner(ctx, ns)
		t, pod := spinning(ctx, ns, "thread")
		Expect(cluster.Client.Delete(ctx, &pod, client.GracePeriodSeconds(0))).To(Succeed())
		failedCall(ctx, t)
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 2"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "the next call gets a new sandbox: %+v", r.Error)
	}, SpecTimeout(12*time.Minute))

	It("go with their thread, and the running child of a deleted parent stops", Label("SUB-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pool(ctx, ns, 1)
		create(ctx,
			spin(ns),
			harness.Scripted(ns, "model",
				harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "spin"})),
				harness.On("spin", harness.Calls("spin", map[string]any{})),
				harness.Answer("never")),
			harness.Prompt(ns, "prompt", "model", "spin", "builtin:subagents"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "agent"}, Blocking: true}}
			}))
		t := thread(ctx, ns, "thread")
		Expect(t.Say(ctx, "go")).To(Succeed())
		var child skeinv1.Thread
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns), client.MatchingLabels{skeinv1.LabelManagedBy: skeinv1.ManagedByValue})).To(Succeed())
			g.Expect(l.Items).To(HaveLen(1))
			child = l.Items[0]
			g.Expect(cluster.Thread(ns, child.Name).Value(ctx, "spinning")).To(MatchJSON("true"))
		}).Should(Succeed())
		Expect(sandboxes(ctx, Default, ns, claimed())).NotTo(BeEmpty())
		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			g.Expect(l.Items).To(BeEmpty())
			g.Expect(sandboxes(ctx, g, ns, claimed())).To(BeEmpty())
		}).Should(Succeed())
	}, SpecTimeout(12*time.Minute))
})

// probePod runs the probe as an ordinary pod that meets the restricted standard.
func probePod(ns, name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "probe", Image: probeImage, ImagePullPolicy: corev1.PullNever, Args: args,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}
