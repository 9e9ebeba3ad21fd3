package scheduledeffect_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// outage is a store of which neither schedules nor firings can be read while it is away.
type outage struct {
	scheduledeffect.Store
	away bool
}

var errAway = errors.Join(store.ErrUnavailable, errors.New("the database is away"))

func (o *outage) EffectSchedule(ctx context.Context, id string) (*store.EffectSchedule, error) {
	if o.away {
		return nil, errAway
	}
	return o.Store.EffectSchedule(ctx, id)
}

func (o *outage) Firings(ctx context.Context, q store.FiringQuery) ([]store.Firing, error) {
	if o.away {
		return nil, errAway
	}
	return o.Store.Firings(ctx, q)
}

var _ = Describe("A ScheduledEffect whose database is away for a while", func() {
	var w *world
	var stored *outage
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		stored = &outage{Store: w.Store}
		o := w.r.Options
		o.Store = stored
		w.r = scheduledeffect.New(o)
	})
	fails := func(ctx context.Context) {
		GinkgoHelper()
		stored.away = true
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError(ContainSubstring("the database is away")))
		Get(ctx, w.Env, w.s)
		stored.away = false
	}

	It("is not deleted as finished before its edit is reconciled", Label("EFF-03"), func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.MaxFirings, s.Spec.TTLSecondsAfterFinished = ptr.To(int64(1)), ptr.To(int32(60))
		})
		w.s.Generation = 1
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Minute)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 10*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Finished"))

		w.s.Generation, w.s.Spec.MaxFirings = 2, ptr.To(int64(3))
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		fails(ctx)
		Expect(w.s.Status.ObservedGeneration).To(BeEquivalentTo(1))
		w.Clock.Step(2 * time.Minute)
		w.settle(ctx)
		Expect(w.gone(ctx)).To(BeFalse())
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status).To(And(HaveField("Phase", "Active"), HaveField("ObservedGeneration", BeEquivalentTo(2))))
	})

	It("still says that it has fired", Label("EFF-02", "EFF-04"), func(ctx SpecContext) {
		t := w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: t.Name}, ptr.To(skeinv1.NewTimestamp(Start))
		})
		w.pass(ctx, 20*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Fired"))
		fails(ctx)
		w.Clock.Step(2 * time.Second) // until the change is written
		fails(ctx)
		Expect(w.s.Status.Phase).To(Equal("Fired"))
		Expect(meta.IsStatusConditionTrue(w.s.Status.Conditions, skeinv1.ConditionFired)).To(BeTrue())
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonInternalError)))
	})
})
