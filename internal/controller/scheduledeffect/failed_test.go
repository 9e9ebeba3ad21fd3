package scheduledeffect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// noted is a workqueue that notes after how long it is asked to wake up, and how urgent that is.
type noted struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	after      []time.Duration
	priorities []int
}

func (q *noted) AddWithOpts(o priorityqueue.AddOpts, items ...ctrl.Request) {
	q.after, q.priorities = append(q.after, o.After), append(q.priorities, ptr.Deref(o.Priority, 0))
	q.PriorityQueue.AddWithOpts(o, items...)
}

// The workqueue reconciles an object whose reconcile failed after up to 30 seconds.
var _ = Describe("A reconcile that fails", Label("EFF-04"), func() {
	var w *world
	var q *noted
	failed := errors.New("not now")
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		q = &noted{PriorityQueue: priorityqueue.New[ctrl.Request]("test")}
		DeferCleanup(q.ShutDown)
		Expect(w.r.ClockSource().Start(ctx, q)).To(Succeed())
	})
	reconcile := func(ctx SpecContext) error {
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		return err
	}

	It("puts off no other due time of a schedule, and no other Thread", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.ConcurrencyPolicy = "", skeinv1.ConcurrencyReplace
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.pass(ctx, 70*time.Second)
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "delete" {
				return failed
			}
			return nil
		})
		w.Clock.Step(50 * time.Second)
		Expect(reconcile(ctx)).To(MatchError(failed), "the Thread of the first due time is replaced")
		Expect(q.after).To(HaveExactElements(time.Minute))
		w.Clock.Step(time.Minute)
		Expect(reconcile(ctx)).To(MatchError(failed))
		Expect(q.after).To(HaveExactElements(time.Minute, time.Minute))
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule canceled", "2m0s schedule canceled", "3m0s schedule running"}))
		var threads skeinv1.ThreadList
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(3))
		w.Fail(nil)
		w.settle(ctx)
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(1))
	})

	It("takes precedence shortly before a due time only", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.Schedules = "", []string{"@every 1h"}
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.pass(ctx, time.Hour)
		w.endThreads(ctx)
		away := &failingStore{Store: w.Store, endRunning: func(int) error { return failed }}
		o := w.r.Options
		o.Store = away
		w.r = scheduledeffect.New(o)
		Expect(w.r.ClockSource().Start(ctx, q)).To(Succeed())
		Expect(reconcile(ctx)).To(MatchError(failed))
		w.Clock.Step(59*time.Minute + time.Second)
		Expect(reconcile(ctx)).To(MatchError(failed))
		Expect(q.after).To(HaveExactElements(time.Hour, 59*time.Second))
		Expect(q.priorities).To(HaveExactElements(BeNumerically("<", 0), BeNumerically(">", 0)))
	})

	It("puts off no effect of one time", func(ctx SpecContext) {
		w.thread(ctx)
		at := skeinv1.NewTimestamp(Start.Add(20 * time.Second))
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, &at
		})
		w.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.ScheduledEffect); ok && verb == "patch" && metav1.GetControllerOf(o) != nil {
				return failed
			}
			return nil
		})
		Expect(reconcile(ctx)).To(MatchError(failed), "the Thread cannot be made the owner")
		Expect(q.after).To(HaveExactElements(20 * time.Second))
	})
})

// failingStore is a store in which what endRunning says happens.
type failingStore struct {
	scheduledeffect.Store
	calls      int
	endRunning func(call int) error
}

func (s *failingStore) EndRunning(ctx context.Context, end store.FiringEnd) error {
	s.calls++
	if err := s.endRunning(s.calls); err != nil {
		return err
	}
	return s.Store.EndRunning(ctx, end)
}

var _ = Describe("Errors with the Threads of a schedule", Label("EFF-04"), func() {
	const underWay = 20
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.Schedules = "", []string{"@every 1s"}
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.pass(ctx, underWay*time.Second)
		Expect(w.firings(ctx)).To(HaveLen(underWay))
		w.endThreads(ctx)
	})
	// reconcile reconciles with a store that fails, and returns how many firings it came to.
	reconcile := func(ctx context.Context, fail func(call int) error) (int, error) {
		failing, o := &failingStore{Store: w.Store, endRunning: fail}, w.r.Options
		o.Store = failing
		_, err := scheduledeffect.New(o).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		return failing.calls, err
	}

	It("are few enough to read", func(ctx SpecContext) {
		calls, err := reconcile(ctx, func(call int) error { return fmt.Errorf("not now (%d)", call) })
		Expect(calls).To(Equal(underWay), "an error with one Thread keeps no other from being looked at")
		Expect(err).To(MatchError(And(HavePrefix("record the end of a firing: not now (1)\n"), HaveSuffix("not now (5)\nand 15 more errors with Threads of this ScheduledEffect"))))
	})

	It("end the work on others while the store is away", func(ctx SpecContext) {
		calls, err := reconcile(ctx, func(int) error { return fmt.Errorf("dial: %w", store.ErrUnavailable) })
		Expect(calls).To(Equal(1))
		Expect(err).To(MatchError(store.ErrUnavailable))
	})

	It("end the work on others at a shutdown", func(ctx SpecContext) {
		within, stop := context.WithCancel(ctx)
		calls, err := reconcile(within, func(int) error { stop(); return nil })
		Expect(calls).To(Equal(1))
		Expect(err).To(MatchError(context.Canceled))
	})

	It("are told of when there is a conflict among them", func(ctx SpecContext) {
		calls, err := reconcile(ctx, func(call int) error {
			if call == 7 {
				return errors.New("not now")
			}
			return store.ErrConflict
		})
		Expect(calls).To(Equal(underWay))
		Expect(err).To(MatchError("record the end of a firing: not now"))
		_, err = reconcile(ctx, func(int) error { return store.ErrConflict })
		Expect(err).NotTo(HaveOccurred(), "everything is read again")
	})
})

var _ = Describe("An effect of one time with policies", Label("EFF-04", "EFF-05"), func() {
	DescribeTable("shows how its firing ended", func(ctx SpecContext, status store.FiringStatus, reason string) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			at := skeinv1.NewTimestamp(Start)
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At, s.Spec.Timeout = nil, &skeinv1.LocalRef{Name: "t"}, &at, &metav1.Duration{Duration: time.Minute}
		})
		w.settle(ctx)
		if status == store.FiringCanceled {
			Expect(w.Store.CancelFirings(ctx, "no", w.firings(ctx)[0].Key())).To(Equal(1))
		} else {
			Finish(ctx, w.Env, w.s, status, "no tea")
		}
		w.settle(ctx)
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason))))
		Expect(hasFailed(w.s)).To(Equal(status == store.FiringFailed))
	},
		Entry("that succeeded", store.FiringSucceeded, skeinv1.ReasonSucceeded),
		Entry("that failed", store.FiringFailed, skeinv1.ReasonFailed),
		Entry("that was canceled", store.FiringCanceled, skeinv1.ReasonCanceled),
	)

	complete := func(w *world) *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)
	}

	It("shows that it failed when its history keeps nothing", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			at := skeinv1.NewTimestamp(Start)
			s.Spec.Schedules, s.Spec.Effect, s.Spec.At, s.Spec.FailedHistoryLimit = nil, "", &at, ptr.To(int32(0))
			s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
		})
		w.settle(ctx)
		var threads skeinv1.ThreadList
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(1))
		threads.Items[0].Status.LastRun = &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunFailed, Reason: skeinv1.ReasonModelFailed}
		Expect(w.Client.Status().Update(ctx, &threads.Items[0])).To(Succeed())
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).NotTo(HaveOccurred())
		w.r = scheduledeffect.New(w.r.Options) // another leader goes on
		w.settle(ctx)
		Expect(complete(w)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonFailed))))
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(BeEmpty())
	})

	It("stays made good by a run by hand when its history keeps nothing", Label("EFF-08"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			at := skeinv1.NewTimestamp(Start)
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, &at
			s.Spec.SuccessfulHistoryLimit = ptr.To(int32(0))
		})
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "")
		w.settle(ctx)
		Expect(hasFailed(w.s)).To(BeTrue())
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		for range 3 {
			w.pass(ctx, 2*time.Second)
			Expect(hasFailed(w.s)).To(BeFalse())
		}
		w.r = scheduledeffect.New(w.r.Options) // another leader goes on
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeFalse())
	})

	DescribeTable("shows how the firing of its due time ended, not how manual runs ended", Label("EFF-08"), func(ctx SpecContext, own, byHand store.FiringStatus, reason string) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			at := skeinv1.NewTimestamp(Start)
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At, s.Spec.Timeout = nil, &skeinv1.LocalRef{Name: "t"}, &at, &metav1.Duration{Duration: time.Minute}
			s.Spec.SuccessfulHistoryLimit, s.Spec.FailedHistoryLimit = ptr.To(int32(1)), ptr.To(int32(1))
		})
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, own, "")
		w.settle(ctx)
		for round := range 2 { // the second one forgets firings of the first
			w.Clock.Step(time.Second)
			var times []string
			for i := range 30 { // more than are read for the status
				times = append(times, w.Clock.Now().Add(time.Duration(i-40)*time.Millisecond).Format(time.RFC3339Nano))
			}
			w.ask(ctx, skeinv1.AnnotationRunAt, strings.Join(times, ","))
			w.settle(ctx)
			Finish(ctx, w.Env, w.s, byHand, "")
			w.pass(ctx, 2*time.Second) // the limit of status writes
			Expect(complete(w)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason))), "round %d", round)
			Expect(hasFailed(w.s)).To(Equal(own == store.FiringFailed && byHand == store.FiringFailed), "round %d", round)
		}
		Expect(w.s.Status.LastOutcome).To(BeEquivalentTo(strings.ToUpper(string(byHand[:1]))+string(byHand[1:])), "it is that of the newest firing of all")
	},
		Entry("it succeeded, and they failed", store.FiringSucceeded, store.FiringFailed, skeinv1.ReasonSucceeded),
		Entry("it failed, and they succeeded", store.FiringFailed, store.FiringSucceeded, skeinv1.ReasonFailed),
		Entry("it failed, and so did they", store.FiringFailed, store.FiringFailed, skeinv1.ReasonFailed),
	)
})
