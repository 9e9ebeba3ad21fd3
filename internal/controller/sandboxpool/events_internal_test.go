package sandboxpool

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

var _ = Describe("An event of a pod", func() {
	pool := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "default"}}
	pod := func(state string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{skeinv1.LabelPool: "default", skeinv1.LabelSandboxState: state}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	var q *controllertest.Queue
	BeforeEach(func() { q = controllertest.NewQueue() })

	DescribeTable("lets its pool be looked at", Label("COD-09"), func(ctx SpecContext, from, to *corev1.Pod, after time.Duration) {
		e := event.UpdateEvent{ObjectOld: from, ObjectNew: to}
		Expect(podTurned().Update(e)).To(BeTrue())
		podEvents().Update(ctx, e, q)
		Expect(q.Due).To(Equal(map[ctrl.Request]time.Duration{pool: after}))
	},
		Entry("after a claim once the first run is likely over", pod(sandboxpod.Warm, corev1.ConditionTrue), pod(sandboxpod.Claimed, corev1.ConditionTrue), refillDelay),
		Entry("at once when it is ready", pod(sandboxpod.Warm, corev1.ConditionFalse), pod(sandboxpod.Warm, corev1.ConditionTrue), time.Duration(0)),
		Entry("at once when it answers no more", pod(sandboxpod.Warm, corev1.ConditionTrue), pod(sandboxpod.Warm, corev1.ConditionFalse), time.Duration(0)),
		Entry("at once when a claimed one answers no more", pod(sandboxpod.Claimed, corev1.ConditionTrue), pod(sandboxpod.Claimed, corev1.ConditionFalse), time.Duration(0)),
	)

	It("lets its pool be looked at at once when the pod came or went", Label("COD-09"), func(ctx SpecContext) {
		podEvents().Create(ctx, event.CreateEvent{Object: pod(sandboxpod.Warm, corev1.ConditionFalse)}, q)
		Expect(q.Due).To(HaveKeyWithValue(pool, time.Duration(0)))
		clear(q.Due)
		podEvents().Delete(ctx, event.DeleteEvent{Object: pod(sandboxpod.Claimed, corev1.ConditionTrue)}, q)
		Expect(q.Due).To(HaveKeyWithValue(pool, time.Duration(0)))
	})
})
