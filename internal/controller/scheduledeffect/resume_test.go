package scheduledeffect_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A schedule that is paused after failures", Label("EFF-08"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.declare(ctx, pauses, everySecond, func(s *skeinv1.ScheduledEffect) { s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll} })
		w.pass(ctx, time.Second)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no")
		w.pass(ctx, 69*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Paused"))
		Expect(w.ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", "1 firings failed in a row: correct the cause, then run kubectl skein effect resume s"))))
	})
	resumed := func(ctx context.Context) {
		GinkgoHelper()
		Expect(w.s.Annotations).To(BeEmpty())
		Expect(w.s.Status).To(And(HaveField("Phase", "Active"), HaveField("NextTime", Not(BeNil()))))
		Expect(w.ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(w.skipped(ctx)).To(ConsistOf(record("Paused", 2*time.Second, 70*time.Second, 69)))
		w.pass(ctx, 2*time.Second)
		Expect(w.fired(ctx)).To(HaveExactElements(HavePrefix("1s"), HavePrefix("1m11s schedule"), HavePrefix("1m12s schedule")), "nothing that was due meanwhile fires")
	}

	It("goes on when a person resumes it, until it fails again", func(ctx SpecContext) {
		w.ask(ctx, skeinv1.AnnotationResume, "now")
		w.settle(ctx)
		resumed(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no")
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Paused"))
	})

	It("goes on when the manager crashed before it removed the request", func(ctx SpecContext) {
		w.ask(ctx, skeinv1.AnnotationResume, "now")
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.ScheduledEffect); ok && verb == "patch" {
				return errors.New("not now")
			}
			return nil
		})
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError("remove an annotation: not now"))
		w.Fail(nil)
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		w.settle(ctx)
		resumed(ctx)
	})
})
