package sandboxpool_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

var _ = Describe("A change of the template", func() {
	var w *world
	var old string
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	// rolling fills the pool, then changes its template.
	rolling := func(ctx context.Context, edit func(*skeinv1.SandboxPoolSpec)) {
		GinkgoHelper()
		w.change(ctx, edit)
		w.reconcile(ctx)
		w.allUp(ctx)
		w.reconcile(ctx)
		old = sandboxpod.TemplateHash(w.pool, w.options().Settings)
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.MaxConcurrency = 7 })
	}
	// count returns the numbers of warm pods by template and readiness, and of claimed pods.
	type counts struct{ Old, Ready, Starting, Claimed int }
	count := func(ctx context.Context) (c counts) {
		GinkgoHelper()
		for _, p := range w.pods(ctx) {
			switch {
			case p.Labels[skeinv1.LabelSandboxState] == "claimed":
				c.Claimed++
			case p.Labels[skeinv1.LabelTemplateHash] == old:
				c.Old++
			case sandboxpod.IsReady(&p):
				c.Ready++
			default:
				c.Starting++
			}
		}
		return c
	}

	It("replaces warm pods a few at a time, each by one that is ready, and never claimed ones", Label("COD-09"), func(ctx SpecContext) {
		rolling(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm, s.Max = 8, 50 })
		w.claim(ctx, w.pods(ctx)[0])
		w.reconcile(ctx)
		w.allUp(ctx)
		for range 8 {
			w.reconcile(ctx)
			c := count(ctx)
			Expect(c.Old+c.Ready).To(BeNumerically(">=", 8), "as many serve as are to be warm")
			Expect(c.Starting).To(BeNumerically("<=", 2), "a quarter of the number")
			Expect(c.Claimed).To(Equal(1))
			Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonWarm), "it serves all the time")
			w.allUp(ctx)
		}
		w.reconcile(ctx)
		Expect(count(ctx)).To(Equal(counts{Ready: 8, Claimed: 1}))
	})

	It("goes one by one in a small pool", func(ctx SpecContext) {
		rolling(ctx, func(s *skeinv1.SandboxPoolSpec) {})
		for _, want := range []counts{{Old: 2, Starting: 1}, {Old: 1, Ready: 1, Starting: 1}, {Ready: 2}} {
			w.reconcile(ctx)
			Expect(count(ctx)).To(Equal(want))
			w.allUp(ctx)
		}
	})

	It("makes way where the pool has no room for both", func(ctx SpecContext) {
		rolling(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Max = 2 })
		for range 4 {
			w.reconcile(ctx)
			Expect(len(w.pods(ctx))).To(BeNumerically("<=", 2))
			w.allUp(ctx)
		}
		Expect(count(ctx)).To(Equal(counts{Ready: 2}))
	})

	It("stops at a template that does not work, and the old pods serve on", Label("COD-09"), func(ctx SpecContext) {
		rolling(ctx, func(s *skeinv1.SandboxPoolSpec) { s.Warm, s.Max = 8, 50 })
		for range 5 {
			w.Clock.Step(time.Second) // a status is written at most once a second
			w.reconcile(ctx)
			for _, p := range w.pods(ctx) {
				if !sandboxpod.IsReady(&p) {
					w.become(ctx, &p, waiting("ImagePullBackOff", "no such image"))
				}
			}
		}
		Expect(count(ctx)).To(Equal(counts{Old: 8, Starting: 2}))
		Expect(w.ready(ctx)).To(HaveField("Reason", skeinv1.ReasonImageUnavailable))
		Expect(w.get(ctx).Status).To(And(HaveField("Warm", int32(8)), HaveField("Outdated", int32(8)), HaveField("Failing", int32(2))))

		By("going on with the next template, and dropping at once what never came up")
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.MaxConcurrency = 9 })
		w.reconcile(ctx)
		Expect(count(ctx)).To(Equal(counts{Old: 8, Starting: 2}))
		Expect(w.warm(ctx)).NotTo(ContainElement(HaveField("Status.Phase", corev1.PodPending)), "the stuck ones are gone")
	})

	It("is one when labels, annotations or the scheduling of the pods change", func(ctx SpecContext) {
		hash := func() string { return sandboxpod.TemplateHash(w.pool, w.options().Settings) }
		seen := map[string]bool{hash(): true}
		for _, edit := range []func(*skeinv1.SandboxPoolSpec){
			func(s *skeinv1.SandboxPoolSpec) {
				s.PodMetadata = &skeinv1.SandboxPodMetadata{Labels: map[string]string{"team": "a"}}
			},
			func(s *skeinv1.SandboxPoolSpec) { s.PodMetadata.Annotations = map[string]string{"cost": "a"} },
			func(s *skeinv1.SandboxPoolSpec) { s.PriorityClassName = "low" },
			func(s *skeinv1.SandboxPoolSpec) { s.HostUsers = ptr.To(false) },
			func(s *skeinv1.SandboxPoolSpec) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway}}
			},
			func(s *skeinv1.SandboxPoolSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} },
			func(s *skeinv1.SandboxPoolSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "r"}} },
		} {
			edit(&w.pool.Spec)
			Expect(seen).NotTo(HaveKey(hash()))
			seen[hash()] = true
		}
		before := hash()
		w.pool.Spec.Warm, w.pool.Spec.MaxWarm = 3, new(int32)
		Expect(hash()).To(Equal(before), "numbers are no part of it")
	})

	It("says where to read why a node does not set a pod up", Label("COD-09"), func(ctx SpecContext) {
		w.change(ctx, func(s *skeinv1.SandboxPoolSpec) { s.HostUsers = ptr.To(false) })
		w.reconcile(ctx)
		for _, p := range w.pods(ctx) {
			w.become(ctx, &p, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}})
		}
		w.Clock.Step(3 * time.Minute)
		w.reconcile(ctx)
		Expect(w.ready(ctx)).To(And(HaveField("Reason", skeinv1.ReasonPodsFailing), HaveField("Message", And(
			ContainSubstring("its node cannot set it up"), ContainSubstring("kubectl describe pod -n "+w.pool.Namespace+" ")))))
	})
})
