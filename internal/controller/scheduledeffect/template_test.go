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
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// lostStarts does not record that the Thread of a firing exists.
type lostStarts struct{ scheduledeffect.Store }

func (lostStarts) StartRunning(context.Context, store.FiringKey) error {
	return errors.New("the manager is lost")
}

var _ = Describe("A template whose agent is missing or not ready", Label("EFF-03", "EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	of := func(s *skeinv1.ScheduledEffect) {
		fromTemplate(s)
		s.Spec.ThreadTemplate.Spec.AgentRef.Name = "late"
	}
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionReady)
	}
	threads := func(ctx context.Context) int {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		return len(list.Items)
	}

	It("creates no Threads meanwhile, says why, and creates those of all due times when the agent is ready", Label("K8S-02"), func(ctx SpecContext) {
		w.declare(ctx, of)
		w.settle(ctx)
		missing := `Agent "late" does not exist in namespace "demo": create it, or correct spec.threadTemplate.spec.agentRef`
		Expect(ready()).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", missing))), "before it is due")
		w.pass(ctx, 2*time.Minute)
		Expect(threads(ctx)).To(BeZero())
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running", "2m0s schedule running"}))
		Expect(w.firings(ctx)).To(HaveEach(And(HaveField("Waiting", missing), HaveField("StartedAt", BeZero()))))
		Expect(ready()).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))

		a := &skeinv1.Agent{ObjectMeta: Meta("late")}
		w.Create(ctx, a)
		w.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, "no prompt")
		w.pass(ctx, 30*time.Second)
		Expect(threads(ctx)).To(BeZero())
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Waiting", `Agent "late" is not ready: no prompt`)))
		Expect(ready()).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotReady), HaveField("Message", `Agent "late" is not ready: no prompt`))))

		w.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		w.settle(ctx) // as the watch of the agent does
		Expect(threads(ctx)).To(Equal(2))
		Expect(w.firings(ctx)).To(HaveEach(And(HaveField("Waiting", ""), HaveField("StartedAt", Not(BeZero())))))
		w.pass(ctx, 2*time.Second)
		Expect(ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	It("skips firings that could not begin in time, which is no failure", Label("EFF-05", "EFF-08"), func(ctx SpecContext) {
		o := w.r.Options
		o.Recorder = w.Recorder
		w.r = scheduledeffect.New(o)
		w.declare(ctx, of, func(s *skeinv1.ScheduledEffect) {
			s.Spec.StartingDeadlineSeconds, s.Spec.PauseAfterFailures = ptr.To(int64(20)), ptr.To(int32(1))
		})
		before := counted(skeinv1.ReasonMissed)
		w.pass(ctx, 3*time.Minute+45*time.Second)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule canceled", "2m0s schedule canceled", "3m0s schedule canceled"}))
		late := And(HavePrefix("it could not begin within 20s of its due time: "), ContainSubstring(`Agent "late" does not exist`))
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Error", late)))
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Reason", skeinv1.ReasonMissed), HaveField("Detail", late), HaveField("ThreadID", ""), HaveField("Count", int64(3)),
			HaveField("Due", Start.Add(time.Minute).UnixMicro()), HaveField("Until", Start.Add(3*time.Minute).UnixMicro()))), "one record for due times in a row")
		Expect(w.s.Status).To(And(HaveField("Phase", "Active"), HaveField("Skipped", int64(3)), HaveField("LastOutcome", "Canceled"),
			HaveField("LastSkip", HaveValue(And(HaveField("Reason", skeinv1.ReasonMissed), HaveField("Count", int64(3)))))))
		Expect(w.events()).To(ConsistOf(ContainSubstring("Missed the due time 2026-03-01T12:01:00Z did not fire: Missed (it could not begin within 20s of its due time: ")))
		Expect(counted(skeinv1.ReasonMissed) - before).To(BeEquivalentTo(3))
		Expect(threads(ctx)).To(BeZero())

		w.ReadyAgent(ctx, "late")
		w.pass(ctx, time.Minute)
		Expect(w.fired(ctx)).To(HaveLen(4))
		Expect(threads(ctx)).To(Equal(1))
	})

	It("of one time says that it did not fire", Label("EFF-01", "EFF-05"), func(ctx SpecContext) {
		w.declare(ctx, of, once(0), func(s *skeinv1.ScheduledEffect) { s.Spec.StartingDeadlineSeconds = ptr.To(int64(20)) })
		w.pass(ctx, time.Minute)
		Expect(w.s.Status.Phase).To(Equal("Finished"))
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonMissed), HaveField("Message", ContainSubstring("could not begin within 20s")))))
		Expect(ready()).To(HaveValue(HaveField("Reason", Not(Equal(skeinv1.ReasonFailed)))))
	})

	It("does not begin too late when its turn comes", Label("EFF-05"), func(ctx SpecContext) {
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.StartingDeadlineSeconds, s.Spec.ConcurrencyPolicy = ptr.To(int64(20)), skeinv1.ConcurrencyQueue
		})
		w.pass(ctx, 2*time.Minute+30*time.Second)
		w.endThreads(ctx)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule succeeded", "2m0s schedule canceled"}))
		Expect(w.skipped(ctx)).To(ConsistOf(And(HaveField("Reason", skeinv1.ReasonMissed), HaveField("Detail", "it could not begin within 20s of its due time"))))
	})

	It("made its Thread, also where a manager was lost before it recorded that, and the run has ended", Label("EFF-04"), func(ctx SpecContext) {
		whole := w.r.Options.Store
		w.r.Options.Store = lostStarts{whole}
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyForbid })
		w.Clock.Step(time.Minute)
		_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.s)})
		Expect(err).To(MatchError(ContainSubstring("the manager is lost")))
		Expect(threads(ctx)).To(Equal(1))
		w.endThreads(ctx)
		w.r.Options.Store = whole
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringSucceeded), HaveField("StartedAt", Not(BeZero())))))
	})

	DescribeTable("follows the concurrency policy", func(ctx SpecContext, policy skeinv1.ConcurrencyPolicy, created int, want ...string) {
		w.declare(ctx, of, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = policy })
		w.pass(ctx, 3*time.Minute)
		Expect(w.fired(ctx)).To(Equal(want))
		Expect(threads(ctx)).To(BeZero())
		w.ReadyAgent(ctx, "late")
		w.settle(ctx)
		Expect(threads(ctx)).To(Equal(created))
	},
		Entry("Allow", skeinv1.ConcurrencyAllow, 3, "1m0s schedule running", "2m0s schedule running", "3m0s schedule running"),
		Entry("Forbid", skeinv1.ConcurrencyForbid, 1, "1m0s schedule running"),
		Entry("Replace", skeinv1.ConcurrencyReplace, 1, "1m0s schedule canceled", "2m0s schedule canceled", "3m0s schedule running"),
		Entry("Queue", skeinv1.ConcurrencyQueue, 1, "1m0s schedule running", "2m0s schedule queued"),
	)

	It("of one time waits, and fires once", Label("EFF-01"), func(ctx SpecContext) {
		w.declare(ctx, of, once(0))
		w.pass(ctx, 10*time.Minute)
		Expect(w.s.Status).To(And(HaveField("Phase", "Active"), HaveField("CompletionTime", BeNil())))
		Expect(threads(ctx)).To(BeZero())
		w.ReadyAgent(ctx, "late")
		w.settle(ctx)
		w.endThreads(ctx)
		w.pass(ctx, 2*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(HaveField("Status", store.FiringSucceeded)))
		Expect(w.s.Status.Phase).To(Equal("Finished"))
	})
})

// starts counts the writes that record that the Thread of a firing was created.
type starts struct {
	scheduledeffect.Store
	n int
}

func (s *starts) StartRunning(ctx context.Context, k store.FiringKey) error {
	s.n++
	return s.Store.StartRunning(ctx, k)
}

// behind is a client whose cache has no Threads.
type behind struct{ client.Client }

func (b behind) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*skeinv1.Thread); ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: skeinv1.GroupVersion.Group, Resource: "threads"}, key.Name)
	}
	return b.Client.Get(ctx, key, o, opts...)
}

var _ = Describe("A firing of a template whose Thread was created", Label("EFF-03"), func() {
	It("is not written again while the Thread runs", func(ctx SpecContext) {
		w := newWorld(ctx)
		o := w.r.Options
		counted := &starts{Store: w.Store}
		o.Store = counted
		w.r = scheduledeffect.New(o)
		w.declare(ctx, fromTemplate)
		w.pass(ctx, 5*time.Minute)
		Expect(w.fired(ctx)).To(HaveLen(5))
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Status", store.FiringRunning)))
		Expect(counted.n).To(Equal(5))
	})

	It("is not over because the cache does not show the Thread", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, fromTemplate)
		w.pass(ctx, time.Minute)
		o := w.r.Options
		o.Client, o.Live = behind{w.Client}, w.Client
		w.r = scheduledeffect.New(o) // of another leader
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running"}))

		Expect(w.Client.DeleteAllOf(ctx, &skeinv1.Thread{}, client.InNamespace(Namespace))).To(Succeed())
		w.settle(ctx)
		Expect(w.firings(ctx)).To(HaveEach(And(HaveField("Status", store.FiringCanceled), HaveField("Error", "its Thread was deleted before its run ended"))))
	})
})

var _ = Describe("A firing of a template whose Thread is not ready", Label("EFF-03", "EFF-07"), func() {
	const missing = `Secret "none" does not exist`
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ConcurrencyPolicy, s.Spec.StartingDeadlineSeconds = skeinv1.ConcurrencyForbid, ptr.To(int64(20))
		})
		w.pass(ctx, time.Minute)
	})
	thread := func(ctx context.Context) *skeinv1.Thread {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(w.Client.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		return &list.Items[0]
	}
	turn := func(ctx context.Context, status metav1.ConditionStatus, reason, message string) {
		GinkgoHelper()
		t := thread(ctx)
		w.SetReady(ctx, t, &t.Status.Conditions, status, reason, message)
		w.settle(ctx) // as the watch of Threads does
	}
	waiting := func(ctx context.Context) string {
		GinkgoHelper()
		all := w.firings(ctx)
		Expect(all).To(HaveLen(1))
		return all[0].Waiting
	}

	It("says why, and that it is over", func(ctx SpecContext) {
		turn(ctx, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, missing)
		why := `Thread "` + thread(ctx).Name + `" is not ready: ` + missing
		Expect(waiting(ctx)).To(Equal(why))
		w.pass(ctx, 2*time.Minute)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running"}), "it has begun, so it may last")
		Expect(ready(w.s)).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonWaiting), HaveField("Message", "a firing waits: "+why))))

		turn(ctx, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		Expect(waiting(ctx)).To(BeEmpty())
		w.pass(ctx, 2*time.Second)
		Expect(ready(w.s)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		w.endThreads(ctx)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule succeeded"}))
	})

	It("says it after a crash at the creation of the Thread too", func(ctx SpecContext) {
		turn(ctx, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, missing)
		Expect(w.Store.ForgetEffect(ctx, string(w.s.UID))).To(Succeed())
		w.r = scheduledeffect.New(w.r.Options)
		Expect(w.Store.RecordDue(ctx, store.DueRecord{
			Schedule: store.EffectSchedule{EffectID: string(w.s.UID), Namespace: Namespace, Name: w.s.Name, Cursor: w.Clock.Now().UnixMicro()},
			Firings:  []store.Firing{{EffectID: string(w.s.UID), Due: Start.Add(time.Minute).UnixMicro(), Namespace: Namespace, Name: w.s.Name, Status: store.FiringRunning, Origin: store.OriginSchedule}},
		})).To(Succeed())
		w.settle(ctx)
		Expect(waiting(ctx)).To(ContainSubstring(missing))
	})

	It("does not wait once its run has begun", func(ctx SpecContext) {
		t := thread(ctx)
		t.Status.LastRun = &skeinv1.RunStatus{ID: "r"}
		Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		turn(ctx, metav1.ConditionFalse, skeinv1.ReasonInternalError, "not now")
		Expect(waiting(ctx)).To(BeEmpty())
	})
})
