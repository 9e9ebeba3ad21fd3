package sandboxpool_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

var _ = Describe("Pods of a pool that start at the same time", Label("COD-09"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm, s.Max = 60, 0 })
	})

	// settled reconciles until no more pods are made, and returns how many there are.
	settled := func(ctx context.Context) int {
		GinkgoHelper()
		for {
			before := len(w.pods(ctx))
			w.reconcile(ctx)
			if len(w.pods(ctx)) == before {
				return before
			}
		}
	}
	node := func(ctx context.Context, name, processors string, edit ...func(*corev1.Node)) *corev1.Node {
		GinkgoHelper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, f := range edit {
			f(n)
		}
		w.Create(ctx, n)
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(processors)}
		Expect(w.Client.Status().Update(ctx, n)).To(Succeed())
		return n
	}

	It("are ten where the nodes have few processors, and another one begins when one is ready", func(ctx SpecContext) {
		node(ctx, "small", "1500m")
		Expect(settled(ctx)).To(Equal(10))
		for i, p := range w.pods(ctx)[:4] {
			w.become(ctx, &p, up)
			Expect(settled(ctx)).To(Equal(11 + i))
		}
	})

	It("are five for each processor of the nodes that the pool may use", func(ctx SpecContext) {
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.NodeSelector = map[string]string{"for": "agents"} })
		selected := func(n *corev1.Node) { n.Labels = map[string]string{"for": "agents"} }
		node(ctx, "a", "4", selected)
		node(ctx, "cordoned", "64", selected, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		node(ctx, "other", "64")
		Expect(settled(ctx)).To(Equal(20))
		node(ctx, "b", "3900m", selected)
		Expect(settled(ctx)).To(Equal(40))
		node(ctx, "c", "32", selected)
		Expect(settled(ctx)).To(Equal(60))
	})

	It("include those that threads have taken", func(ctx SpecContext) {
		Expect(settled(ctx)).To(Equal(10))
		for _, p := range w.pods(ctx)[:6] {
			w.claim(ctx, p)
		}
		Expect(settled(ctx)).To(Equal(10))
		taken := 0
		for _, p := range w.pods(ctx) {
			if p.Labels[skeinv1.LabelSandboxState] == "claimed" {
				w.become(ctx, &p, up)
				taken++
				Expect(settled(ctx)).To(Equal(10 + taken))
			}
		}
		Expect(taken).To(Equal(6))
	})

	It("do not include those that have been ready before", func(ctx SpecContext) {
		Expect(settled(ctx)).To(Equal(10))
		served := w.pods(ctx)
		for i := range served {
			w.become(ctx, &served[i], up)
			w.claim(ctx, served[i])
		}
		Expect(settled(ctx)).To(Equal(20))
		w.Clock.Step(31 * time.Second)
		Expect(settled(ctx)).To(Equal(30))
		lost := *up.DeepCopy()
		lost.Conditions[0].Status, lost.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(w.Clock.Now())
		started := 0
		for _, p := range w.pods(ctx) {
			if p.Labels[skeinv1.LabelSandboxState] == "claimed" {
				w.become(ctx, &p, lost)
			} else if started < 3 && p.CreationTimestamp.Equal(&metav1.Time{Time: w.Clock.Now().Truncate(time.Second)}) {
				w.become(ctx, &p, up)
				started++
			}
		}
		Expect(started).To(Equal(3))
		Expect(settled(ctx)).To(Equal(33), "three of those that are starting are ready")
	})

	It("do not include those that wait for something else than a processor", func(ctx SpecContext) {
		Expect(settled(ctx)).To(Equal(10))
		for i, p := range w.pods(ctx)[:3] {
			w.become(ctx, &p, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: fmt.Sprint("0/", i, " nodes")}}})
		}
		Expect(settled(ctx)).To(Equal(13))
		result := w.reconcile(ctx)
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
		w.Clock.Step(31 * time.Second)
		Expect(settled(ctx)).To(Equal(23), "the others have been starting for too long")
	})
})
