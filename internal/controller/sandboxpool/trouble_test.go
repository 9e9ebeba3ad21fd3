package sandboxpool_test

import (
	"errors"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("Trouble with pods", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("counts pods that fail, backs off, says why, and heals", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			for _, p := range w.pods(ctx) {
				w.become(ctx, &p, ended("Error", 3, "no seccomp\n"))
			}
			w.Clock.Step(time.Second)
			w.Writes()
			result := w.reconcile(ctx)
			Expect(w.Writes()).To(And(HaveKeyWithValue("delete Pod", 2), Not(HaveKey("create Pod"))))
			Expect(result.RequeueAfter).To(Equal(pause))
			Expect(w.ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonPodsFailing), HaveField("Message", ContainSubstring("Error (exit code 3): no seccomp"))))
			w.Clock.Step(pause - time.Millisecond)
			w.reconcile(ctx)
			Expect(w.pods(ctx)).To(BeEmpty())
			w.Clock.Step(time.Millisecond)
			w.reconcile(ctx)
			Expect(w.pods(ctx)).To(HaveLen(2))
		}
		w.allUp(ctx)
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm))
	})

	It("says which pod does not come up and what to do, and makes no more of them", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		for _, p := range w.pods(ctx) {
			w.become(ctx, &p, waiting("ImagePullBackOff", "no such image"))
		}
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(2))
		Expect(w.ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonImageUnavailable),
			HaveField("Message", And(ContainSubstring("ImagePullBackOff: no such image"), ContainSubstring("correct spec.image")))))
		Expect(w.pool.Status).To(And(HaveField("Failing", int32(2)), HaveField("Starting", int32(0))))
		Expect(w.Recorder.Events).To(Receive(And(ContainSubstring("Warning ImageUnavailable"), ContainSubstring("ImagePullBackOff"))))
		w.allUp(ctx)
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm))
		Expect(w.Recorder.Events).To(Receive(ContainSubstring("start again")))
	})

	It("says that no node takes the pods", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		for _, p := range w.pods(ctx) {
			w.become(ctx, &p, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."}}})
		}
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonUnschedulable),
			HaveField("Message", And(ContainSubstring("Insufficient cpu"), ContainSubstring("make room on the nodes")))))
	})

	DescribeTable("says that pods are refused and what to do, and does not hammer", Label("COD-09"), func(ctx SpecContext, text, reason, advice string) {
		refuse := func(verb string, o client.Object) error {
			if _, ok := o.(*corev1.Pod); ok && verb == "create" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New(text))
			}
			return nil
		}
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm = 1 })
		w.reconcile(ctx)
		w.allUp(ctx)
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm = 3 })
		w.Fail(refuse)
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			w.Writes()
			Expect(w.reconcile(ctx).RequeueAfter).To(Equal(pause))
			Expect(w.Writes()).To(HaveKeyWithValue("create Pod", 2))
			w.Clock.Step(pause - time.Millisecond)
			w.reconcile(ctx)
			Expect(w.Writes()).NotTo(HaveKey("create Pod"), "the pod that is ready says nothing of those that are refused")
			w.Clock.Step(time.Millisecond)
		}
		Expect(w.ready(ctx)).To(And(HaveField("Reason", reason), HaveField("Message", And(ContainSubstring(text), ContainSubstring(advice)))))
		w.Fail(nil)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(3))
		w.Clock.Step(time.Second)
		w.allUp(ctx)
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm))
	},
		Entry("by a quota", "exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3", skeinv1.ReasonQuotaExceeded, "raise the namespace's ResourceQuota"),
		Entry("by a policy", `violates PodSecurity "restricted:latest"`, skeinv1.ReasonPodsRefused, "or the policy of the namespace"),
	)

	It("makes the others when a quota leaves room for some", func(ctx SpecContext) {
		n := 0
		var mu sync.Mutex
		w.Fail(func(verb string, o client.Object) error {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := o.(*corev1.Pod); ok && verb == "create" {
				if n++; n > 1 {
					return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota: small"))
				}
			}
			return nil
		})
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(1))
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonQuotaExceeded))
	})

	It("replaces a pod that answers no more", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		w.allUp(ctx)
		w.reconcile(ctx)
		p := w.pods(ctx)[0]
		silent := up.DeepCopy()
		silent.Conditions[0].Status = corev1.ConditionFalse
		silent.Conditions[0].LastTransitionTime = metav1.NewTime(w.Clock.Now())
		w.become(ctx, &p, *silent)
		w.Clock.Step(2*time.Minute - time.Second)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(ContainElement(HaveField("Name", p.Name)), "it may answer again")
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).NotTo(ContainElement(HaveField("Name", p.Name)))
		Expect(w.ready(ctx)).To(HaveField("Message", ContainSubstring("has not answered for 2m")))
		w.Clock.Step(time.Second)
		w.reconcile(ctx)
		Expect(w.pods(ctx)).To(HaveLen(2))
	})

	It("removes pods whose deletion is not confirmed, as on a lost node", Label("COD-09"), func(ctx SpecContext) {
		w.reconcile(ctx)
		w.allUp(ctx)
		w.claim(ctx, w.pods(ctx)[0])
		for _, p := range w.pods(ctx) {
			p.Finalizers = []string{"test/kubelet"}
			Expect(w.Client.Update(ctx, &p)).To(Succeed())
			Expect(w.Client.Delete(ctx, &p)).To(Succeed())
		}
		left := w.pods(ctx)
		Expect(left).To(HaveLen(2))
		w.Writes()
		last := left[0].DeletionTimestamp.Time // the API server in memory has its own clock, which may have advanced
		if also := left[1].DeletionTimestamp.Time; also.After(last) {
			last = also
		}
		w.Clock.SetTime(last)
		result := w.reconcile(ctx)
		Expect(w.Writes()).To(And(HaveKeyWithValue("create Pod", 2), Not(HaveKey("delete Pod"))))
		Expect(result.RequeueAfter).To(BeNumerically("<=", 30*time.Second))
		w.Clock.Step(31 * time.Second)
		w.reconcile(ctx)
		Expect(w.Writes()).To(HaveKeyWithValue("delete Pod", 2))
	})
})
