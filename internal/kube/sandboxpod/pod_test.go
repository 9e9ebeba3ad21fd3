package sandboxpod_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

var settings = sandboxpod.Settings{Image: "sandbox:dev", ImagePullPolicy: corev1.PullNever}

var _ = Describe("A sandbox pod", func() {
	It("keeps the restricted Pod Security Standard", Label("COD-08"), func() {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}}
		spec := sandboxpod.New(pool, settings).Spec
		Expect(spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
		Expect(spec.EnableServiceLinks).To(HaveValue(BeFalse()))
		Expect(spec.HostNetwork || spec.HostPID || spec.HostIPC).To(BeFalse())
		Expect(spec.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
		Expect(spec.SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(65532)))
		Expect(spec.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
		Expect(spec.Containers).To(HaveLen(1))
		c := spec.Containers[0]
		Expect(c.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(c.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(c.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
		Expect(c.Resources.Limits).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory), HaveKey(corev1.ResourceEphemeralStorage)))
		Expect(spec.Volumes).To(HaveExactElements(HaveField("Secret.SecretName", "skein-sandbox-p")))
	})

	It("has limits even where the pool asks for more than the defaults", func() {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}, Spec: skeinv1.SandboxPoolSpec{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
		r := sandboxpod.New(pool, settings).Spec.Containers[0].Resources
		Expect(r.Limits.Memory().Cmp(*r.Requests.Memory())).To(Equal(0))
		Expect(r.Limits.Cpu().String()).To(Equal("1"))
	})

	It("has the engine of its pool, the image of that, and room for it", Label("COD-09"), func() {
		set := settings
		set.V8Image = "sandbox-v8:dev"
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}}
		plain := sandboxpod.TemplateHash(pool, set)
		pool.Spec.Engine = skeinv1.SandboxEngineQuickJS
		Expect(sandboxpod.TemplateHash(pool, set)).To(Equal(plain), "it is the default")
		pool.Spec.Engine = skeinv1.SandboxEngineV8
		Expect(sandboxpod.TemplateHash(pool, set)).NotTo(Equal(plain))
		c := sandboxpod.New(pool, set).Spec.Containers[0]
		Expect(c.Image).To(Equal("sandbox-v8:dev"))
		Expect(c.Args).To(ContainElement("--engine=v8"))
		Expect(c.Resources.Limits.Memory().String()).To(Equal("1Gi"))
		pool.Spec.Image = "mine:1"
		Expect(sandboxpod.New(pool, set).Spec.Containers[0].Image).To(Equal("mine:1"))
	})

	It("serves profiles on its loopback interface where the manager asks for them", func() {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}}
		Expect(sandboxpod.New(pool, settings).Spec.Containers[0].Args).NotTo(ContainElement(HavePrefix("--pprof")))
		set := settings
		set.ProfilePort = 6061
		c := sandboxpod.New(pool, set).Spec.Containers[0]
		Expect(c.Args).To(ContainElement("--pprof-listen=127.0.0.1:6061"))
		Expect(c.Ports).NotTo(ContainElement(HaveField("ContainerPort", BeEquivalentTo(6061))))
	})

	It("has another template hash when anything of it differs", func() {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}}
		first := sandboxpod.TemplateHash(pool, settings)
		pool.Spec.MaxConcurrency = 9
		Expect(sandboxpod.TemplateHash(pool, settings)).NotTo(Equal(first))
		Expect(sandboxpod.New(pool, settings).Labels[skeinv1.LabelTemplateHash]).To(Equal(sandboxpod.TemplateHash(pool, settings)))
		pool.Spec.Warm = 5
		Expect(sandboxpod.New(pool, settings).Labels[skeinv1.LabelTemplateHash]).To(Equal(sandboxpod.TemplateHash(pool, settings)), "the number is not part of it")
	})

	It("goes where the pool says, and leaves a node that is gone within half a minute", Label("COD-09"), func() {
		affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
		own := []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}}
		all := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}, Spec: skeinv1.SandboxPoolSpec{
			NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: own, Affinity: affinity, PriorityClassName: "low", RuntimeClassName: ptr.To("gvisor"), HostUsers: ptr.To(false),
			ImagePullSecrets:          []corev1.LocalObjectReference{{Name: "registry"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "host"}, all},
		}}
		spec := sandboxpod.New(pool, settings).Spec
		Expect(spec.NodeSelector).To(HaveKeyWithValue("disk", "ssd"))
		Expect(spec.Affinity).To(Equal(affinity))
		Expect(spec.PriorityClassName).To(Equal("low"))
		Expect(spec.RuntimeClassName).To(HaveValue(Equal("gvisor")))
		Expect(spec.HostUsers).To(HaveValue(BeFalse()))
		Expect(spec.ImagePullSecrets).To(HaveExactElements(corev1.LocalObjectReference{Name: "registry"}))
		Expect(spec.TopologySpreadConstraints).To(HaveExactElements(
			HaveField("LabelSelector.MatchLabels", HaveKeyWithValue(skeinv1.LabelPool, "p")), Equal(all)))
		Expect(spec.Tolerations).To(HaveExactElements(own[0], own[1],
			And(HaveField("Key", corev1.TaintNodeUnreachable), HaveField("TolerationSeconds", HaveValue(BeEquivalentTo(30))))))
		Expect(pool.Spec.TopologySpreadConstraints[0].LabelSelector).To(BeNil(), "the pool itself is left as it is")
		pool.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		Expect(sandboxpod.New(pool, settings).Spec.Tolerations).To(HaveLen(1), "it stays whatever happens, as it says")
	})

	It("has the labels and annotations of its pool, but for Skein's own", func() {
		pool := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "p"}, Spec: skeinv1.SandboxPoolSpec{PodMetadata: &skeinv1.SandboxPodMetadata{
			Labels: map[string]string{"team": "a", skeinv1.LabelPool: "q", skeinv1.LabelSandboxState: "claimed"}, Annotations: map[string]string{"cost": "b"}}}}
		pod := sandboxpod.New(pool, settings)
		Expect(pod.Labels).To(And(HaveKeyWithValue("team", "a"), HaveKeyWithValue(skeinv1.LabelPool, "p"), HaveKeyWithValue(skeinv1.LabelSandboxState, "warm")))
		Expect(pod.Annotations).To(HaveKeyWithValue("cost", "b"))
		pod.Annotations["x"] = "y"
		Expect(pool.Spec.PodMetadata.Annotations).NotTo(HaveKey("x"))
	})
})

var _ = DescribeTable("What keeps a pod from coming up", func(status corev1.PodStatus, reason string, final bool, text ...string) {
	t := sandboxpod.TroubleOf(&corev1.Pod{Status: status})
	Expect(t.Reason).To(Equal(reason))
	Expect(t.Final).To(Equal(final))
	for _, s := range text {
		Expect(t.String()).To(ContainSubstring(s))
	}
},
	Entry("nothing", corev1.PodStatus{Phase: corev1.PodPending}, "", false),
	Entry("nothing yet", waitingFor("ContainerCreating"), "", false),
	Entry("its image, just tried", waitingFor("ErrImagePull"), skeinv1.ReasonImageUnavailable, false, "ErrImagePull: x", "spec.imagePullSecrets"),
	Entry("its image, tried in vain", waitingFor("ImagePullBackOff"), skeinv1.ReasonImageUnavailable, true, "--sandbox-image"),
	Entry("an image that must not be pulled", waitingFor("ErrImageNeverPull"), skeinv1.ReasonImageUnavailable, true, "spec.imagePullPolicy"),
	Entry("its container", waitingFor("CreateContainerConfigError"), skeinv1.ReasonPodsFailing, false, "CreateContainerConfigError: x"),
	Entry("the nodes", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3"}}},
		skeinv1.ReasonUnschedulable, false, "Unschedulable: 0/3", "make room"),
	Entry("its end", corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}}, skeinv1.ReasonPodsFailing, true, "OOMKilled (exit code 137)", "raise resources.limits.memory"),
	Entry("its node", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}, skeinv1.ReasonPodsFailing, true, "Evicted: low on memory"),
)

func waitingFor(reason string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "x"}}}}}
}
