package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An effect whose Thread was deleted, when another Thread has the name", Label("EFF-06"), func() {
	var w *world
	var first *skeinv1.Thread
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		first = w.thread(ctx)
	})
	oneTime := func(due time.Duration) func(*skeinv1.ScheduledEffect) {
		return func(s *skeinv1.ScheduledEffect) {
			forThread(s)
			once(due)(s)
		}
	}
	// again deletes the Thread and creates another of its name.
	again := func(ctx context.Context) *skeinv1.Thread {
		GinkgoHelper()
		Expect(w.Client.Delete(ctx, first)).To(Succeed())
		return w.thread(ctx)
	}
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)
	}

	DescribeTable("does not fire for the younger one, which the garbage collector may give the time to", func(ctx SpecContext, edit func(*skeinv1.ScheduledEffect)) {
		w.declare(ctx, edit)
		w.settle(ctx)
		Expect(metav1.IsControlledBy(w.s, first)).To(BeTrue())
		younger := again(ctx)
		w.pass(ctx, 2*time.Minute)
		Expect(w.firings(ctx)).To(BeEmpty())
		Expect(metav1.IsControlledBy(w.s, first)).To(BeTrue())
		Expect(ready()).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Thread "t" is another one`)))))

		By("with --cascade=orphan it is the younger one's")
		before := w.s.DeepCopy()
		w.s.OwnerReferences = nil
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		Expect(scheduledeffect.OwnerLeft().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: w.s})).To(BeTrue(), "it is reconciled")
		w.pass(ctx, 2*time.Second)
		Expect(metav1.IsControlledBy(w.s, younger)).To(BeTrue())
		Expect(w.firings(ctx)).To(HaveEach(HaveField("ThreadID", string(younger.UID))))
		Expect(w.firings(ctx)).NotTo(BeEmpty())
	},
		Entry("once", oneTime(time.Minute)),
		Entry("on a schedule", func(s *skeinv1.ScheduledEffect) {
			forThread(s)
			s.Spec.CatchUp = &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll}
		}),
	)

	DescribeTable("is not the younger one's when the owner reference could not be written before", func(ctx SpecContext, edit func(*skeinv1.ScheduledEffect), orphans bool) {
		w.declare(ctx, edit)
		w.Fail(func(verb string, _ client.Object) error {
			if verb == "patch" {
				return apierrors.NewInternalError(context.DeadlineExceeded)
			}
			return nil
		})
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError(ContainSubstring("make the Thread the owner")))
		w.Fail(nil)
		younger := again(ctx)
		w.Writes()
		w.pass(ctx, 2*time.Minute)
		Expect(w.Writes()).To(BeEmpty(), "the event of the deletion says whether the effect goes with its Thread")
		Expect(w.firings(ctx)).To(BeEmpty())
		last := first.DeepCopy()
		if orphans {
			last.DeletionTimestamp, last.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
		}
		sawDelete(w, last)
		w.settle(ctx)
		Expect(w.gone(ctx)).To(Equal(!orphans))
		if orphans {
			Expect(metav1.IsControlledBy(w.s, younger)).To(BeTrue())
			return
		}
		Expect(w.firings(ctx)).To(BeEmpty())
	},
		Entry("once", oneTime(time.Minute), false),
		Entry("on a schedule", forThread, false),
		Entry("and stays with --cascade=orphan", oneTime(time.Minute), true),
	)

	It("says that its end is not known when it fired for the earlier one and no record of that is left, and does not fire again", Label("EFF-04"), func(ctx SpecContext) {
		w.declare(ctx, oneTime(5*time.Second))
		w.pass(ctx, 6*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("ThreadID", string(first.UID))))
		w.r = scheduledeffect.New(w.r.Options) // of another leader
		again(ctx)
		w.pass(ctx, 11*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Fired"))
		Expect(metav1.GetControllerOf(w.s)).To(BeNil())

		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		Expect(w.Store.PurgeThread(ctx, string(first.UID))).Error().NotTo(HaveOccurred())
		w.pass(ctx, 2*time.Second)
		Expect(w.firings(ctx)).To(BeEmpty())
		Expect(w.s.Status).To(And(HaveField("Phase", "Unknown"), HaveField("LastOutcome", BeEmpty()), HaveField("Active", BeZero()), HaveField("CompletionTime", Not(BeNil()))))
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonUnknown),
			HaveField("Message", ContainSubstring("deleted with the Thread that it fired for")))))
		Expect(meta.IsStatusConditionTrue(w.s.Status.Conditions, skeinv1.ConditionFired)).To(BeTrue())
		w.pass(ctx, 5*time.Minute)
		Expect(w.gone(ctx)).To(BeTrue(), "its time to live is over")
	})
})
