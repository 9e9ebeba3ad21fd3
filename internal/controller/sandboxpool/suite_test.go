package sandboxpool_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/sandboxpool"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxca"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

func TestSandboxPool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sandboxpool controller")
}

// world is a pool of two warm sandboxes, at most five, with its reconciler. The specs act as the kubelet.
type world struct {
	*Env
	r         *sandboxpool.Reconciler
	authority *sandboxca.Authority
	pool      *skeinv1.SandboxPool
}

func newWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := &world{Env: New(ctx)}
	w.authority = sandboxca.New(w.Client, "skein-system", w.Clock, sandboxca.DefaultTerms())
	Expect(w.authority.Load(ctx)).To(Succeed())
	w.r = sandboxpool.New(w.options())
	w.pool = &skeinv1.SandboxPool{ObjectMeta: Meta("default"), Spec: skeinv1.SandboxPoolSpec{Warm: 2, Max: 5}}
	w.Create(ctx, w.pool)
	w.Writes()
	return w
}

func (w *world) options() sandboxpool.Options {
	return sandboxpool.Options{Client: w.Client, Settings: sandboxpod.Settings{Image: "sandbox:dev"}, Authority: w.authority,
		ManagerNamespace: "skein-system", Recorder: w.Recorder, Clock: w.Clock}
}

func (w *world) reconcile(ctx context.Context) ctrl.Result {
	GinkgoHelper()
	return Reconcile(ctx, w.r, w.pool)
}

// get reads the pool again.
func (w *world) get(ctx context.Context) *skeinv1.SandboxPool {
	GinkgoHelper()
	return Get(ctx, w.Env, w.pool)
}

// change edits the pool's spec.
func (w *world) change(ctx context.Context, edit func(*skeinv1.SandboxPoolSpec)) {
	GinkgoHelper()
	w.get(ctx)
	edit(&w.pool.Spec)
	w.pool.Generation++
	Expect(w.Client.Update(ctx, w.pool)).To(Succeed())
}

func (w *world) pods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	var l corev1.PodList
	Expect(w.Client.List(ctx, &l)).To(Succeed())
	return l.Items
}

// warm returns the unclaimed pods.
func (w *world) warm(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	var warm []corev1.Pod
	for _, p := range w.pods(ctx) {
		if p.Labels[skeinv1.LabelSandboxState] == sandboxpod.Warm {
			warm = append(warm, p)
		}
	}
	return warm
}

func (w *world) become(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) {
	GinkgoHelper()
	p.Status = status
	Expect(w.Client.Status().Update(ctx, p)).To(Succeed())
}

var up = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}

// waiting returns the status of a pod whose container does not start.
func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
}

// ended returns the status of a pod whose container has ended.
func ended(reason string, code int32, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Message: message}}}}}
}

func (w *world) allUp(ctx context.Context) {
	GinkgoHelper()
	for _, p := range w.pods(ctx) {
		w.become(ctx, &p, up)
	}
}

func (w *world) ready(ctx context.Context) metav1.Condition {
	GinkgoHelper()
	c := meta.FindStatusCondition(w.get(ctx).Status.Conditions, skeinv1.ConditionReady)
	Expect(c).NotTo(BeNil())
	return *c
}

func (w *world) claim(ctx context.Context, p corev1.Pod) {
	GinkgoHelper()
	p.Labels[skeinv1.LabelSandboxState] = "claimed"
	p.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("t", "00000000-0000-4000-8000-000000009999")}
	Expect(w.Client.Update(ctx, &p)).To(Succeed())
}
