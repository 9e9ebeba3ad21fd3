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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// sawUpdate and sawDelete have the controller handle events of Threads.
func sawUpdate(w *world, before, after *skeinv1.Thread) {
	w.r.ByThread(handler.Funcs{}).Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, nil)
}

func sawDelete(w *world, t *skeinv1.Thread) {
	w.r.ByThread(handler.Funcs{}).Delete(context.Background(), event.DeleteEvent{Object: t}, nil)
}

var _ = Describe("What a declared effect of one time writes", Label("EFF-03", "K8S-07"), func() {
	var w *world
	var thread *skeinv1.Thread
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		thread = w.thread(ctx)
	})
	// once declares an effect of the thread that is due after a time.
	once := func(ctx context.Context, due time.Duration, edit ...func(*skeinv1.ScheduledEffect)) {
		GinkgoHelper()
		w.declare(ctx, append([]func(*skeinv1.ScheduledEffect){func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadRef, s.Spec.At = nil, &skeinv1.LocalRef{Name: "t"}, ptr.To(skeinv1.NewTimestamp(Start.Add(due)))
			s.Spec.TTLSecondsAfterFinished = ptr.To(int32(60))
		}}, edit...)...)
		w.Writes()
	}
	// another stands for the next leader.
	another := func() { w.r = scheduledeffect.New(w.r.Options) }

	DescribeTable("is how it ended, and its deletion, when it is due soon", func(ctx SpecContext, due time.Duration) {
		once(ctx, due)
		w.pass(ctx, due+time.Second)
		Expect(w.r.Unowned()).To(Equal(1))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.settle(ctx)
		Expect(w.r.Unowned()).To(BeZero(), "it stays, whatever becomes of its Thread")
		Expect(w.s.Status).To(And(HaveField("Phase", "Succeeded"), HaveField("ScheduledAt", after(due)), HaveField("FiredAt", BeNumerically(">=", after(due)))))
		Expect(meta.IsStatusConditionTrue(w.s.Status.Conditions, skeinv1.ConditionReady)).To(BeTrue())
		w.pass(ctx, time.Minute+time.Second)
		Expect(w.gone(ctx)).To(BeTrue())
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 1, "delete ScheduledEffect": 1}))
	},
		Entry("in nine seconds", 9*time.Second),
		Entry("at once", time.Duration(0)),
		Entry("and no manager ran then", -time.Hour),
	)

	It("is two more when it is due later: its owner, and that it is pending", func(ctx SpecContext) {
		once(ctx, time.Minute)
		w.settle(ctx)
		due := HaveValue(HaveField("Time", BeTemporally("==", Start.Add(time.Minute))))
		Expect(w.s.Status).To(And(HaveField("Phase", "Pending"), HaveField("NextTime", due), HaveField("LastTime", BeNil())))
		Expect(meta.IsStatusConditionTrue(w.s.Status.Conditions, skeinv1.ConditionReady)).To(BeTrue())
		Expect(metav1.IsControlledBy(w.s, thread)).To(BeTrue())
		w.pass(ctx, time.Minute)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.settle(ctx)
		Expect(w.s.Status).To(And(HaveField("NextTime", BeNil()), HaveField("LastTime", due), HaveField("LastOutcome", "Succeeded"), HaveField("Active", BeZero())))
		w.pass(ctx, time.Minute+time.Second)
		Expect(w.gone(ctx)).To(BeTrue())
		Expect(w.Writes()).To(Equal(map[string]int{"patch ScheduledEffect": 1, "status ScheduledEffect": 2, "delete ScheduledEffect": 1}))
	})

	It("is at once what keeps it from firing, and its owner", func(ctx SpecContext) {
		once(ctx, 5*time.Second, func(s *skeinv1.ScheduledEffect) { s.Spec.Effect = "comes-later" })
		w.settle(ctx)
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
		Expect(metav1.IsControlledBy(w.s, thread)).To(BeTrue())
		Expect(w.Writes()).To(Equal(map[string]int{"patch ScheduledEffect": 1, "status ScheduledEffect": 1}))
	})

	It("is two more when it is older than its Thread: its owner, and that it is pending", func(ctx SpecContext) {
		Expect(w.Client.Delete(ctx, thread)).To(Succeed())
		once(ctx, 9*time.Second)
		w.Clock.Step(time.Second)
		later := w.thread(ctx)
		w.Writes()
		w.settle(ctx)
		Expect(metav1.IsControlledBy(w.s, later)).To(BeTrue())
		Expect(w.s.Status.Phase).To(Equal("Pending"))
		another() // knows from the object which Thread that was
		w.pass(ctx, 9*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.settle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Succeeded"))
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("ThreadID", string(later.UID))))
		Expect(w.Writes()).To(Equal(map[string]int{"patch ScheduledEffect": 1, "status ScheduledEffect": 2}))
	})

	DescribeTable("is its owner and that it is under way, when that takes long", func(ctx SpecContext, ends func()) {
		once(ctx, 5*time.Second)
		w.pass(ctx, 6*time.Second)
		ends()
		w.pass(ctx, 11*time.Second)
		Expect(w.s.Status).To(And(HaveField("Phase", "Fired"), HaveField("Active", int32(1)), HaveField("LastOutcome", BeEmpty())))
		Expect(metav1.IsControlledBy(w.s, thread)).To(BeTrue())
		Expect(w.Writes()).To(Equal(map[string]int{"patch ScheduledEffect": 1, "status ScheduledEffect": 1}))
	},
		Entry("with one leader", func() {}),
		Entry("also when another leads meanwhile", another),
	)

	It("is its owner when the first try to make it that failed", func(ctx SpecContext) {
		once(ctx, 5*time.Second)
		w.pass(ctx, 6*time.Second)
		w.Fail(func(verb string, _ client.Object) error {
			if verb == "patch" {
				return apierrors.NewInternalError(context.DeadlineExceeded)
			}
			return nil
		})
		w.Clock.Step(11 * time.Second)
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(HaveOccurred())
		w.Fail(nil)
		another()
		w.settle(ctx)
		Expect(metav1.IsControlledBy(w.s, thread)).To(BeTrue())
	})

	It("is its deletion, when its Thread is deleted before it is due and another gets the name", Label("EFF-06"), func(ctx SpecContext) {
		once(ctx, 5*time.Second)
		w.settle(ctx)
		Expect(w.Writes()).To(BeEmpty())
		Expect(w.Client.Delete(ctx, thread)).To(Succeed())
		w.Create(ctx, &skeinv1.Thread{ObjectMeta: Meta("t")})
		w.Writes()
		w.pass(ctx, 6*time.Second)
		Expect(w.gone(ctx)).To(BeFalse(), "the event of the deletion says whether the effect goes with its Thread")
		Expect(w.Writes()).To(BeEmpty())
		sawDelete(w, thread)
		w.settle(ctx)
		Expect(w.gone(ctx)).To(BeTrue())
		Expect(w.Writes()).To(Equal(map[string]int{"delete ScheduledEffect": 1}))
		Expect(w.firings(ctx)).To(BeEmpty())

		once(ctx, 9*time.Second) // another of the name, which waits for a Thread that a person creates
		w.settle(ctx)
		Expect(w.gone(ctx)).To(BeFalse())
	})

	DescribeTable("is what is missing, when its Thread is deleted without what it owns", Label("EFF-06"), func(ctx SpecContext, saw func(before, deleting *skeinv1.Thread)) {
		once(ctx, 5*time.Second)
		w.settle(ctx)
		deleting := thread.DeepCopy()
		deleting.DeletionTimestamp, deleting.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
		Expect(w.Client.Delete(ctx, thread)).To(Succeed()) // before a reconcile reads what the finalizers were meanwhile
		saw(thread, deleting)
		w.pass(ctx, 6*time.Second)
		Expect(w.gone(ctx)).To(BeFalse())
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
		Expect(w.Writes()).To(Equal(map[string]int{"delete Thread": 1, "status ScheduledEffect": 1}))
	},
		Entry("and was seen without its finalizer after that", func(before, deleting *skeinv1.Thread) {
			last := deleting.DeepCopy()
			last.Finalizers = nil
			sawUpdate(w, before, deleting)
			sawUpdate(w, deleting, last)
			sawDelete(w, last)
		}),
		Entry("and was seen with its finalizer last", func(_, deleting *skeinv1.Thread) { sawDelete(w, deleting) }),
		Entry("and another one of its name was seen next", func(before, deleting *skeinv1.Thread) {
			other := before.DeepCopy()
			other.UID = "other"
			sawUpdate(w, deleting, other)
		}),
	)

	It("is what is missing, when its Thread turns out to be deleted without what it owns while it is read", Label("EFF-06"), func(ctx SpecContext) {
		once(ctx, 5*time.Second)
		reads := 0
		o := w.r.Options
		o.Client = interceptor.NewClient(w.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if _, ok := o.(*skeinv1.Thread); ok && reads == 0 {
				reads++
				deleting := thread.DeepCopy()
				deleting.DeletionTimestamp, deleting.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
				Expect(c.Delete(ctx, thread)).To(Succeed())
				sawDelete(w, deleting)
			}
			return err
		}})
		w.r = scheduledeffect.New(o)
		w.pass(ctx, 4*time.Second)
		Expect(reads).To(Equal(1))
		Expect(w.gone(ctx)).To(BeFalse())
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
	})
})

var _ = Describe("What a firing of a schedule writes", Label("EFF-03", "K8S-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)
	}
	// rest has it at rest, ten seconds before it is due.
	rest := func(ctx context.Context, edit ...func(*skeinv1.ScheduledEffect)) {
		GinkgoHelper()
		w.declare(ctx, edit...)
		w.pass(ctx, 50*time.Second)
		w.Writes()
	}

	DescribeTable("is one status, whether its handler takes long or waits for its turn", func(ctx SpecContext, takes time.Duration) {
		rest(ctx)
		for minute := range 3 {
			w.pass(ctx, 10*time.Second+takes)
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			w.pass(ctx, 50*time.Second-takes)
			Expect(w.s.Status).To(And(HaveField("Active", int32(0)), HaveField("LastOutcome", "Succeeded"), HaveField("Fired", int64(minute+1)),
				HaveField("NextTime.Time", BeTemporally("==", Start.Add(time.Duration(minute+2)*time.Minute)))))
		}
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 3}))
	},
		Entry("at once", 10*time.Millisecond),
		Entry("for two seconds", 2*time.Second),
		Entry("for nine seconds", 9*time.Second),
	)

	It("is one more when it is under way for ten seconds", func(ctx SpecContext) {
		rest(ctx)
		w.pass(ctx, 19*time.Second)
		Expect(w.Writes()).To(BeEmpty())
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Active).To(Equal(int32(1)))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Active).To(BeZero())
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 2}))
	})

	It("is one, beside its Thread, when it makes one", func(ctx SpecContext) {
		rest(ctx, fromTemplate)
		w.pass(ctx, 15*time.Second)
		Expect(w.Writes()).To(Equal(map[string]int{"create Thread": 1}))
		var threads skeinv1.ThreadList
		Expect(w.Client.List(ctx, &threads)).To(Succeed())
		Expect(threads.Items).To(HaveLen(1))
		threads.Items[0].Status.LastRun = &skeinv1.RunStatus{Outcome: skeinv1.RunSucceeded}
		Expect(w.Client.Status().Update(ctx, &threads.Items[0])).To(Succeed())
		w.pass(ctx, 5*time.Second)
		Expect(w.s.Status).To(And(HaveField("Active", int32(0)), HaveField("LastOutcome", "Succeeded")))
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 1}))
	})

	It("is soon a failure, and what pauses the schedule", func(ctx SpecContext) {
		rest(ctx, pauses)
		w.pass(ctx, 12*time.Second)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no")
		w.settle(ctx)
		Expect(w.s.Status).To(And(HaveField("Phase", "Paused"), HaveField("LastOutcome", "Failed")))
		Expect(ready()).To(HaveValue(HaveField("Reason", skeinv1.ReasonPaused)))
	})

	It("is a failure within a second while others are under way", func(ctx SpecContext) {
		w.declare(ctx, everySecond)
		w.pass(ctx, 5*time.Second)
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Namespace: Namespace, Epoch: claimed[0].Epoch, Status: store.FiringFailed, Error: "no", Counts: true})).To(Succeed())
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status).To(And(HaveField("LastOutcome", "Failed"), HaveField("Active", BeNumerically(">", 1))))
	})

	It("is one in ten seconds while others are under way all the time", func(ctx SpecContext) {
		rest(ctx, everySecond)
		w.pass(ctx, time.Minute)
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 6}))
		Expect(w.firings(ctx)).To(HaveLen(110))
	})

	It("is what it waits for, when that takes ten seconds", func(ctx SpecContext) {
		rest(ctx)
		w.pass(ctx, 11*time.Second)
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: claimed[0].Key(), Namespace: Namespace, Epoch: claimed[0].Epoch, Status: store.FiringPending, Waiting: "no sandbox is free"})).To(Succeed())
		w.pass(ctx, 5*time.Second)
		Expect(w.Writes()).To(BeEmpty())
		w.pass(ctx, 6*time.Second)
		Expect(ready()).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonWaiting), HaveField("Message", "a firing waits: no sandbox is free"))))
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 2*time.Second)
		Expect(ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(w.Writes()).To(Equal(map[string]int{"status ScheduledEffect": 2}))
	})
})
