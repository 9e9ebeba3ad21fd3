package scheduledeffect_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An effect that is deleted", Label("EFF-06"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.thread(ctx)
	})
	once := func(s *skeinv1.ScheduledEffect) {
		s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
	}
	named := func(name string) func(*skeinv1.ScheduledEffect) {
		return func(s *skeinv1.ScheduledEffect) { s.Name = name }
	}
	// fires declares one that has fired, and waits for a sandbox, say.
	fires := func(ctx SpecContext, edit ...func(*skeinv1.ScheduledEffect)) *skeinv1.ScheduledEffect {
		GinkgoHelper()
		w.declare(ctx, append(edit, once)...)
		w.pass(ctx, 61*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringPending)))
		return w.s
	}
	deletes := func(ctx SpecContext, s *skeinv1.ScheduledEffect, seen bool) {
		GinkgoHelper()
		Expect(w.Client.Delete(ctx, s)).To(Succeed())
		if seen {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
			defer q.ShutDown()
			w.r.ByDueTime().Delete(ctx, event.DeleteEvent{Object: s}, q)
		}
	}
	firingsOf := func(ctx SpecContext, s *skeinv1.ScheduledEffect) []store.Firing {
		GinkgoHelper()
		w.s = s
		return w.firings(ctx)
	}
	canceled := ConsistOf(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "the ScheduledEffect was deleted")))
	pending := ConsistOf(HaveField("Status", store.FiringPending))

	DescribeTable("does not run any more, and keeps for a while that it has fired", func(ctx SpecContext, again bool) {
		s := fires(ctx)
		deletes(ctx, s, true)
		if again {
			w.declare(ctx, once, func(s *skeinv1.ScheduledEffect) { s.Spec.At = ptr.To(skeinv1.NewTimestamp(Start.Add(time.Hour))) })
		}
		Reconcile(ctx, w.r, s)
		Expect(firingsOf(ctx, s)).To(canceled)
	},
		Entry("for good", false),
		Entry("and created again with the same name", true),
	)

	DescribeTable("is canceled, and goes after its TTL, when a removal by code ended before it deleted the object", Label("EFF-01"),
		func(ctx SpecContext, edit ...func(*skeinv1.ScheduledEffect)) {
			w.declare(ctx, append(edit, once)...)
			w.settle(ctx)
			Expect(w.Store.RemoveEffect(ctx, string(w.s.UID))).To(BeTrue())
			w.pass(ctx, 61*time.Second)
			Expect(w.firings(ctx)).To(BeEmpty())
			Expect(w.s.Status.Phase).To(Equal("Canceled"))
			Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(
				HaveField("Reason", skeinv1.ReasonCanceled), HaveField("Message", "it was removed before it was due"))))
			w.idle(ctx)
			Expect(w.gone(ctx)).To(BeTrue())
		},
		Entry("for a thread"),
		Entry("with policies", func(s *skeinv1.ScheduledEffect) { s.Spec.Timeout = &metav1.Duration{Duration: time.Minute} }),
	)

	It("does not run any more when another one of its name is deleted before it is forgotten", func(ctx SpecContext) {
		first := fires(ctx)
		Expect(w.Client.Delete(ctx, first)).To(Succeed())
		second := fires(ctx)
		deletes(ctx, second, false)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer q.ShutDown()
		for _, s := range []*skeinv1.ScheduledEffect{first, second} {
			w.r.ByDueTime().Delete(ctx, event.DeleteEvent{Object: s}, q)
		}
		Reconcile(ctx, w.r, second)
		Expect(firingsOf(ctx, first)).To(canceled)
		Expect(firingsOf(ctx, second)).To(canceled)
	})

	It("does not run any more when no manager saw the deletion of its schedule, however new that is", func(ctx SpecContext) {
		w.declare(ctx)
		w.pass(ctx, 61*time.Second)
		Expect(w.firings(ctx)).To(pending)
		deletes(ctx, w.s, false)
		Expect(w.r.Sweep(ctx)).To(Succeed())
		Expect(w.firings(ctx)).To(BeEmpty())
		_, err := w.Store.EffectSchedule(ctx, string(w.s.UID))
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	It("does not run any more when no manager saw its deletion", func(ctx SpecContext) {
		unseen, taken, kept := fires(ctx, named("unseen")), fires(ctx, named("taken")), fires(ctx, named("kept"))
		deletes(ctx, unseen, false)
		deletes(ctx, taken, false)
		other := fires(ctx, named("taken"))
		narrow := scheduledeffect.New(scheduledeffect.Options{Client: noLists{w.Client}, Live: w.Client, Store: w.Store, Engine: w.Engine, Clock: w.Clock})
		for _, r := range []*scheduledeffect.Reconciler{w.r, narrow} { // one whose cache has the namespace, and one whose cache does not
			Expect(r.Sweep(ctx)).To(Succeed())
			Expect(firingsOf(ctx, unseen)).To(canceled)
			Expect(firingsOf(ctx, taken)).To(canceled)
			Expect(firingsOf(ctx, other)).To(pending)
			Expect(firingsOf(ctx, kept)).To(pending)
		}
	})

	It("runs where the manager may not look for its object", func(ctx SpecContext) {
		s := fires(ctx)
		deletes(ctx, s, false)
		barred := scheduledeffect.New(scheduledeffect.Options{Client: noLists{w.Client}, Live: noReads{w.Client}, Store: w.Store, Engine: w.Engine, Clock: w.Clock})
		Expect(barred.Sweep(ctx)).To(Succeed())
		Expect(firingsOf(ctx, s)).To(pending)
	})
})

// noReads is the API server for a manager that may not read.
type noReads struct{ client.Reader }

func (noReads) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: skeinv1.GroupVersion.Group, Resource: "scheduledeffects"}, key.Name, errors.New("no rights"))
}
