package sandboxpool_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

func TestSandboxPool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sandboxpool controller")
}

var _ = Describe("The sandboxpool controller", func() {
	var (
		e         *Env
		r         *sandboxpool.Reconciler
		authority *kube.SandboxAuthority
		pool      *skeinv1.SandboxPool
	)
	options := func() sandboxpool.Options {
		return sandboxpool.Options{Client: e.Client, Settings: kube.SandboxSettings{Image: "sandbox:dev"}, Authority: authority,
			ManagerNamespace: "skein-system", Recorder: e.Recorder, Clock: e.Clock}
	}
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		authority = kube.NewSandboxAuthority(e.Client, "skein-system", e.Clock)
		Expect(authority.Load(ctx)).To(Succeed())
		r = sandboxpool.New(options())
		pool = &skeinv1.SandboxPool{ObjectMeta: Meta("default"), Spec: skeinv1.SandboxPoolSpec{Warm: 2, Max: 5}}
		e.Create(ctx, pool)
		e.Writes()
	})

	pods := func(ctx context.Context) []corev1.Pod {
		GinkgoHelper()
		var l corev1.PodList
		Expect(e.Client.List(ctx, &l)).To(Succeed())
		return l.Items
	}
	become := func(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) {
		GinkgoHelper()
		p.Status = status
		Expect(e.Client.Status().Update(ctx, p)).To(Succeed())
	}
	up := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	allUp := func(ctx context.Context) {
		GinkgoHelper()
		for _, p := range pods(ctx) {
			become(ctx, &p, up)
		}
	}
	ready := func(ctx context.Context) metav1.Condition {
		GinkgoHelper()
		c := meta.FindStatusCondition(Get(ctx, e, pool).Status.Conditions, skeinv1.ConditionReady)
		Expect(c).NotTo(BeNil())
		return *c
	}
	claim := func(ctx context.Context, p corev1.Pod) {
		GinkgoHelper()
		p.Labels[skeinv1.LabelSandboxState] = "claimed"
		p.OwnerReferences = []metav1.OwnerReference{kube.ThreadOwner("t", "00000000-0000-4000-8000-000000009999")}
		Expect(e.Client.Update(ctx, &p)).To(Succeed())
	}

	It("makes warm pods, behind a certificate and a NetworkPolicy that lets nothing out", Label("COD-08", "COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(HaveLen(2))
		Expect(pods(ctx)).To(HaveEach(And(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm")), HaveField("OwnerReferences", HaveExactElements(HaveField("Kind", "SandboxPool"))))))
		Expect(ready(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonScaling), HaveField("Message", "0 of 2 warm sandboxes are ready")))
		var np networkingv1.NetworkPolicy
		Expect(e.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "skein-sandbox-default"}, &np)).To(Succeed())
		Expect(np.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
		Expect(np.Spec.Egress).To(BeEmpty())
		Expect(np.Spec.Ingress).To(HaveExactElements(And(HaveField("From", HaveLen(1)), HaveField("Ports", HaveLen(1)))))
		Expect(np.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels).To(HaveKeyWithValue(corev1.LabelMetadataName, "skein-system"))
		var s corev1.Secret
		Expect(e.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: kube.SandboxSecret("default")}, &s)).To(Succeed())
		ca, _, err := authority.Client()
		Expect(err).NotTo(HaveOccurred())
		Expect(pki.Check(e.Clock, ca, pki.Pair{Cert: s.Data["tls.crt"], Key: s.Data["tls.key"]}, time.Hour)).To(Succeed())
		Expect(s.Data).NotTo(HaveKey("ca.key"))

		allUp(ctx)
		Reconcile(ctx, r, pool)
		Expect(ready(ctx)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonWarm)))
		Expect(pool.Status).To(And(HaveField("Warm", int32(2)), HaveField("Claimed", int32(0)), HaveField("ObservedGeneration", int64(1))))
		e.Writes()
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, pool)
		Expect(e.Writes()).To(BeEmpty())
	})

	It("refills after a claim with one write", Label("COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		allUp(ctx)
		Reconcile(ctx, r, pool)
		e.Clock.Step(time.Minute)
		claim(ctx, pods(ctx)[0])
		e.Writes()
		Reconcile(ctx, r, pool)
		Expect(e.Writes()).To(Equal(map[string]int{"create Pod": 1}))
		allUp(ctx)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, pool)
		Expect(e.Writes()).To(BeEmpty(), "counts are shown later, and together")
		e.Clock.Step(30 * time.Second)
		Reconcile(ctx, r, pool)
		Expect(e.Writes()).To(Equal(map[string]int{"status SandboxPool": 1}))
		Expect(Get(ctx, e, pool).Status).To(And(HaveField("Warm", int32(2)), HaveField("Claimed", int32(1))))
	})

	It("keeps within its bound", Label("COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		for range 4 {
			allUp(ctx)
			for _, p := range pods(ctx) {
				if p.Labels[skeinv1.LabelSandboxState] == "warm" {
					claim(ctx, p)
				}
			}
			Reconcile(ctx, r, pool)
		}
		Expect(pods(ctx)).To(HaveLen(5))
	})

	It("replaces warm pods of an old template one by one, and never claimed ones", Label("COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		allUp(ctx)
		Reconcile(ctx, r, pool)
		claim(ctx, pods(ctx)[0])
		Reconcile(ctx, r, pool)
		allUp(ctx)
		old := kube.SandboxTemplateHash(pool, options().Settings)
		Get(ctx, e, pool)
		pool.Spec.MaxConcurrency, pool.Generation = 7, 2
		Expect(e.Client.Update(ctx, pool)).To(Succeed())
		count := func() (oldWarm, newWarm, claimed int) {
			for _, p := range pods(ctx) {
				switch {
				case p.Labels[skeinv1.LabelSandboxState] == "claimed":
					claimed++
				case p.Labels[skeinv1.LabelTemplateHash] == old:
					oldWarm++
				default:
					newWarm++
				}
			}
			return
		}
		Reconcile(ctx, r, pool)
		o, n, c := count()
		Expect([]int{o, n, c}).To(Equal([]int{2, 2, 1}), "the old ones serve until the new ones are ready")
		for _, p := range pods(ctx) {
			if p.Labels[skeinv1.LabelTemplateHash] != old {
				become(ctx, &p, up)
				break
			}
		}
		Reconcile(ctx, r, pool)
		o, n, c = count()
		Expect([]int{o, n, c}).To(Equal([]int{1, 2, 1}))
		allUp(ctx)
		Reconcile(ctx, r, pool)
		o, n, c = count()
		Expect([]int{o, n, c}).To(Equal([]int{0, 2, 1}))
	})

	It("rolls a pool that has no room for both", func(ctx SpecContext) {
		pool.Spec.Max = 2
		Expect(e.Client.Update(ctx, pool)).To(Succeed())
		Reconcile(ctx, r, pool)
		allUp(ctx)
		Get(ctx, e, pool)
		pool.Spec.MaxConcurrency = 7
		Expect(e.Client.Update(ctx, pool)).To(Succeed())
		for range 4 {
			Reconcile(ctx, r, pool)
			allUp(ctx)
		}
		hash := kube.SandboxTemplateHash(pool, options().Settings)
		Expect(pods(ctx)).To(HaveLen(2))
		Expect(pods(ctx)).To(HaveEach(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelTemplateHash, hash))))
	})

	It("counts pods that fail, backs off, says why, and heals", Label("COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		failed := corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "no seccomp"}}}}}
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			for _, p := range pods(ctx) {
				become(ctx, &p, failed)
			}
			e.Clock.Step(time.Second)
			e.Writes()
			result := Reconcile(ctx, r, pool)
			Expect(e.Writes()).To(And(HaveKeyWithValue("delete Pod", 2), Not(HaveKey("create Pod"))))
			Expect(result.RequeueAfter).To(Equal(pause))
			Expect(ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonPodsFailing), HaveField("Message", ContainSubstring("Error (exit code 3): no seccomp"))))
			e.Clock.Step(pause - time.Millisecond)
			Reconcile(ctx, r, pool)
			Expect(pods(ctx)).To(BeEmpty())
			e.Clock.Step(time.Millisecond)
			Reconcile(ctx, r, pool)
			Expect(pods(ctx)).To(HaveLen(2))
		}
		allUp(ctx)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, pool)
		Expect(ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm))
	})

	It("says which pod does not come up, and makes no more of them", func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		for _, p := range pods(ctx) {
			become(ctx, &p, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}})
		}
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(HaveLen(2))
		Expect(ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonPodsFailing), HaveField("Message", ContainSubstring("ImagePullBackOff: no such image"))))
		Expect(pool.Status).To(And(HaveField("Failing", int32(2)), HaveField("Starting", int32(0))))
		Expect(e.Recorder.Events).To(Receive(ContainSubstring("ImagePullBackOff")))
	})

	It("says that pods are refused, and does not hammer", func(ctx SpecContext) {
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*corev1.Pod); ok && verb == "create" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota"))
			}
			return nil
		})
		result := Reconcile(ctx, r, pool)
		Expect(result.RequeueAfter).To(Equal(time.Second))
		Expect(ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonPodsFailing), HaveField("Message", ContainSubstring("exceeded quota"))))
		e.Fail(nil)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(HaveLen(2))
	})

	It("clears away claimed pods that have ended, and those above the number", Label("COD-09"), func(ctx SpecContext) {
		Reconcile(ctx, r, pool)
		allUp(ctx)
		p := pods(ctx)[0]
		claim(ctx, p)
		p = pods(ctx)[0]
		become(ctx, &p, corev1.PodStatus{Phase: corev1.PodFailed})
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(HaveEach(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm"))))
		Expect(pods(ctx)).To(HaveLen(2))
		Get(ctx, e, pool)
		pool.Spec.Warm = 0
		Expect(e.Client.Update(ctx, pool)).To(Succeed())
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(BeEmpty())
		Reconcile(ctx, r, pool)
		Expect(ready(ctx)).To(HaveField("Status", metav1.ConditionTrue))
	})

	It("renews the certificate before it ends, and with another authority", func(ctx SpecContext) {
		read := func() []byte {
			GinkgoHelper()
			var s corev1.Secret
			Expect(e.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: kube.SandboxSecret("default")}, &s)).To(Succeed())
			return s.Data["tls.crt"]
		}
		result := Reconcile(ctx, r, pool)
		first := read()
		e.Clock.Step(59 * 24 * time.Hour)
		Reconcile(ctx, r, pool)
		Expect(read()).To(Equal(first))
		Expect(result.RequeueAfter).To(BeNumerically("<=", 60*24*time.Hour))
		e.Clock.Step(2 * 24 * time.Hour)
		Reconcile(ctx, r, pool)
		second := read()
		Expect(second).NotTo(Equal(first))
		Expect(e.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "skein-system", Name: kube.SandboxCASecret}})).To(Succeed())
		Expect(authority.Load(ctx)).To(Succeed())
		Reconcile(ctx, r, pool)
		Expect(read()).NotTo(Equal(second))
	})

	It("makes no pods where sandboxes are processes", func(ctx SpecContext) {
		o := options()
		o.ProcessMode, o.Authority = true, nil
		r = sandboxpool.New(o)
		Reconcile(ctx, r, pool)
		Expect(pods(ctx)).To(BeEmpty())
		Expect(ready(ctx)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonProcessMode)))
	})
})
