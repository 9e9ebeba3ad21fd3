package scheduledeffect_test

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// shifted is the real clock with an offset.
type shifted struct {
	clock.PassiveClock
	by atomic.Int64
}

func (s *shifted) Now() time.Time { return s.PassiveClock.Now().Add(time.Duration(s.by.Load())) }

var _ = Describe("A clock", Label("EFF-04", "EFF-05"), func() {
	var (
		e      *Env
		r      *scheduledeffect.Reconciler
		thread *skeinv1.Thread
	)
	newReconciler := func(c client.Client) *scheduledeffect.Reconciler {
		return scheduledeffect.New(scheduledeffect.Options{Client: c, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
	}
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		r = newReconciler(e.Client)
		thread = &skeinv1.Thread{ObjectMeta: Meta("t")}
		effect := &skeinv1.Effect{ObjectMeta: Meta("tick")}
		e.Create(ctx, thread, effect)
		e.SetReady(ctx, effect, &effect.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: string(thread.UID), Namespace: Namespace, Name: "t", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
	})
	declared := func(ctx context.Context, spec skeinv1.ScheduledEffectSpec) *skeinv1.ScheduledEffect {
		GinkgoHelper()
		s := &skeinv1.ScheduledEffect{ObjectMeta: Meta("s"), Spec: spec}
		s.Spec.Effect = "tick"
		e.Create(ctx, s)
		return s
	}
	// pass lets the clock run for a while, and looks at the object each second and whenever it wants to be looked at.
	pass := func(ctx context.Context, s *skeinv1.ScheduledEffect, d time.Duration) {
		GinkgoHelper()
		for end := e.Clock.Now().Add(d); ; {
			result := Reconcile(ctx, r, s)
			rest := end.Sub(e.Clock.Now())
			if rest <= 0 {
				return
			}
			step := min(rest, time.Second)
			if result.RequeueAfter > 0 {
				step = min(step, result.RequeueAfter)
			}
			e.Clock.Step(step)
		}
	}
	firings := func(ctx context.Context, s *skeinv1.ScheduledEffect) []store.Firing {
		GinkgoHelper()
		all, err := e.Store.Firings(ctx, store.FiringQuery{EffectID: string(s.UID), Limit: 1000})
		Expect(err).NotTo(HaveOccurred())
		slices.Reverse(all)
		for _, f := range all {
			Expect(f.FiredAt).To(BeNumerically(">=", f.Due), "%+v was recorded early", f)
		}
		return all
	}
	dues := func(ctx context.Context, s *skeinv1.ScheduledEffect) (out []time.Duration) {
		GinkgoHelper()
		for _, f := range firings(ctx, s) {
			out = append(out, time.UnixMicro(f.Due).Sub(Start))
		}
		return out
	}

	It("that is set back fires no due time of a schedule twice, and none early", func(ctx SpecContext) {
		s := declared(ctx, skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 1m"}})
		pass(ctx, s, 150*time.Second)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{time.Minute, 2 * time.Minute}))
		e.Clock.SetTime(Start.Add(-time.Hour))
		pass(ctx, s, time.Hour+179*time.Second)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{time.Minute, 2 * time.Minute}))
		r = newReconciler(e.Client)
		pass(ctx, s, time.Minute)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}))
		Expect(Get(ctx, e, s).Status.Skipped).To(BeZero())
	})

	It("that is set back during an edit fires nothing again", func(ctx SpecContext) {
		s := declared(ctx, skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 1m"}})
		pass(ctx, s, 150*time.Second)
		e.Clock.SetTime(Start.Add(30 * time.Second))
		Get(ctx, e, s)
		s.Spec.Schedules = []string{"@every 30s"}
		s.Generation++
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		pass(ctx, s, 2*time.Minute)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{time.Minute, 2 * time.Minute, 150 * time.Second}))
	})

	DescribeTable("that is set back fires one time once, and not early", func(ctx SpecContext, spec skeinv1.ScheduledEffectSpec) {
		spec.ThreadRef = &skeinv1.LocalRef{Name: "t"}
		s := declared(ctx, spec)
		pass(ctx, s, 5*time.Second)
		e.Clock.SetTime(Start.Add(-time.Minute))
		pass(ctx, s, time.Minute+9*time.Second)
		Expect(firings(ctx, s)).To(BeEmpty())
		pass(ctx, s, 2*time.Second)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{10 * time.Second}))
		e.Clock.SetTime(Start.Add(-time.Minute))
		r = newReconciler(e.Client)
		pass(ctx, s, 5*time.Minute)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{10 * time.Second}))
	},
		Entry("at", skeinv1.ScheduledEffectSpec{At: at(10 * time.Second)}),
		Entry("after", skeinv1.ScheduledEffectSpec{After: &metav1.Duration{Duration: 10 * time.Second}}),
		Entry("at, with policies", skeinv1.ScheduledEffectSpec{At: at(10 * time.Second), Retry: &skeinv1.EffectRetry{Attempts: 2}}),
		Entry("after, with policies", skeinv1.ScheduledEffectSpec{After: &metav1.Duration{Duration: 10 * time.Second}, Retry: &skeinv1.EffectRetry{Attempts: 2}}),
	)

	DescribeTable("that is set forward follows the catch-up policy", func(ctx SpecContext, c *skeinv1.CatchUp, fired, missed int) {
		s := declared(ctx, skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 1m"}, CatchUp: c})
		pass(ctx, s, 90*time.Second)
		e.Clock.SetTime(Start.Add(time.Hour + 30*time.Second))
		pass(ctx, s, 10*time.Second)
		Expect(dues(ctx, s)).To(HaveLen(1 + fired))
		Expect(Get(ctx, e, s).Status.Skipped).To(BeEquivalentTo(missed))

		By("setting it back to what it was")
		e.Clock.SetTime(Start.Add(100 * time.Second))
		pass(ctx, s, 58*time.Minute)
		Expect(dues(ctx, s)).To(HaveLen(1 + fired))
		Expect(Get(ctx, e, s).Status.Skipped).To(BeEquivalentTo(missed))
	},
		Entry("by default, the newest", nil, 1, 58),
		Entry("None", &skeinv1.CatchUp{Policy: skeinv1.CatchUpNone}, 0, 59),
		Entry("All", &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll, Limit: 100}, 59, 0),
	)

	It("that is set forward is noticed, although the workqueue still waits", func(ctx SpecContext) {
		c := &shifted{PassiveClock: clock.RealClock{}}
		r = scheduledeffect.New(scheduledeffect.Options{Client: e.Client, Store: e.Store, Engine: e.Engine, Clock: c})
		s := declared(ctx, skeinv1.ScheduledEffectSpec{At: at(100 * 365 * 24 * time.Hour)})
		q := priorityqueue.New[ctrl.Request]("test")
		DeferCleanup(q.ShutDown)
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}
		q.AddWithOpts(priorityqueue.AddOpts{After: time.Hour}, req)
		Expect(r.ClockSource().Start(ctx, q)).To(Succeed())
		c.by.Store(int64(-time.Hour))
		Consistently(q.Len).WithTimeout(3 * time.Second).Should(BeZero())
		c.by.Store(0)
		Eventually(ctx, q.Len).Should(Equal(1), "it is set forward to what it was")
		got, _ := q.Get()
		Expect(got).To(Equal(req))
	}, SpecTimeout(time.Minute))

	It("of a replica that does not lead any more takes back no end", func(ctx SpecContext) {
		s := declared(ctx, skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: "t"}, At: at(time.Second)})
		stale := newReconciler(e.Client)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s) // it fires, and the status is written later
		stopped := false
		e.Fail(func(verb string, _ client.Object) error {
			if verb == "status" && !stopped { // the replica stands still before it writes that the handler runs
				stopped = true
				Finish(ctx, e, s, store.FiringSucceeded, "")
				pass(ctx, s, 5*time.Second)
			}
			return nil
		})
		var result ctrl.Result
		var err error
		for n := 0; n < 5 && !stopped; n++ { // the status is not written at once
			result, err = stale.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			e.Clock.Step(4 * time.Second)
		}
		Expect(stopped).To(BeTrue(), "%v %+v", err, Get(ctx, e, s).Status)
		Expect(Get(ctx, e, s).Status.Phase).To(Equal("Succeeded"))
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(20*time.Millisecond), "its write was refused")
	})

	DescribeTable("of a replica that does not lead any more moves no due time", func(ctx SpecContext, spec skeinv1.ScheduledEffectSpec) {
		spec.ThreadRef, spec.After = &skeinv1.LocalRef{Name: "t"}, &metav1.Duration{Duration: time.Second}
		e.Clock.Step(100 * time.Millisecond)
		s := declared(ctx, spec)
		stale := newReconciler(e.Client)
		stopped := false
		e.Fail(func(verb string, _ client.Object) error {
			if verb == "status" && !stopped { // the replica stands still before it fixes the due time, and its successor goes on
				stopped = true
				e.Clock.Step(5 * time.Second)
				pass(ctx, s, 5*time.Second)
			}
			return nil
		})
		result, err := stale.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(20*time.Millisecond), "its write was refused")
		Expect(stopped).To(BeTrue())
		pass(ctx, s, 10*time.Second)
		Expect(dues(ctx, s)).To(Equal([]time.Duration{2 * time.Second}), "it fired once")
		Finish(ctx, e, s, store.FiringSucceeded, "")
		pass(ctx, s, 5*time.Second)
		Expect(Get(ctx, e, s).Status.CompletionTime).NotTo(BeNil())
	},
		Entry("of one time", skeinv1.ScheduledEffectSpec{}),
		Entry("of one time with policies", skeinv1.ScheduledEffectSpec{Retry: &skeinv1.EffectRetry{Attempts: 2}}),
	)
})

func at(d time.Duration) *skeinv1.Timestamp {
	t := skeinv1.NewTimestamp(Start.Add(d))
	return &t
}
