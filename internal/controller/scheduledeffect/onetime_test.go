package scheduledeffect_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// hasFailed reports whether the conditions say that a one-time effect has failed, as GitOps tools read them.
func hasFailed(s *skeinv1.ScheduledEffect) bool {
	GinkgoHelper()
	stalled := meta.IsStatusConditionTrue(s.Status.Conditions, skeinv1.ConditionStalled)
	Expect(ready(s)).NotTo(BeNil())
	Expect(stalled).To(Equal(ready(s).Status == metav1.ConditionFalse && ready(s).Reason == skeinv1.ReasonFailed))
	return stalled
}

var _ = Describe("A one-time effect that failed", Label("EFF-07", "K8S-01"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.thread(ctx)
	})
	timeout := func(s *skeinv1.ScheduledEffect) { s.Spec.Timeout = &metav1.Duration{Duration: time.Minute} }
	// byHand runs the effect once more.
	byHand := func(ctx SpecContext, status store.FiringStatus) {
		GinkgoHelper()
		w.Clock.Step(time.Second)
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, status, "no tea")
		w.pass(ctx, 3*time.Second)
	}

	DescribeTable("is not ready, whatever it does", func(ctx SpecContext, edits ...func(*skeinv1.ScheduledEffect)) {
		w.declare(ctx, append(edits, once(0))...)
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonFailed))))
	},
		Entry("an effect for a thread", forThread),
		Entry("with policies", forThread, timeout),
		Entry("without a thread"),
		Entry("a call of a tool", func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.CallTool = "", &skeinv1.EffectToolCall{Name: "x"}
		}),
		Entry("a tool that it queues", forThread, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.QueueTool = "", &skeinv1.EffectToolCall{Name: "x"}
		}),
	)

	It("stays so when an edit gives it nothing more to do, or its thread ends", Label("EFF-06"), func(ctx SpecContext) {
		w.declare(ctx, once(0), forThread, timeout)
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		w.s.Generation, w.s.Spec.Suspend = 2, true
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.r = scheduledeffect.New(w.r.Options)
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.ObservedGeneration).To(BeEquivalentTo(2))
		Expect(hasFailed(w.s)).To(BeTrue())
		Expect(w.Store.Apply(ctx, w.s.Labels[skeinv1.LabelThreadID], nil, &store.Terminate{})).To(Succeed())
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
	})

	It("that is suspended afterwards stays so without policies, too", func(ctx SpecContext) {
		w.declare(ctx, once(0), forThread)
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Failed"))
		w.s.Generation, w.s.Spec.Suspend = 2, true
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.ObservedGeneration).To(BeEquivalentTo(2))
		Expect(hasFailed(w.s)).To(BeTrue())
	})

	It("is ready while it runs by hand, and when that has succeeded", Label("EFF-08"), func(ctx SpecContext) {
		w.declare(ctx, once(0), forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.TTLSecondsAfterFinished = ptr.To(int32(3600)) })
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.pass(ctx, 12*time.Second)
		Expect(w.s.Status.Active).To(BeEquivalentTo(1))
		Expect(hasFailed(w.s)).To(BeFalse())
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
		byHand(ctx, store.FiringSucceeded)
		Expect(hasFailed(w.s)).To(BeFalse())
		byHand(ctx, store.FiringFailed)
		Expect(hasFailed(w.s)).To(BeTrue(), "the newest run counts")
	})

	It("is not made good by a run by hand that succeeded before", Label("EFF-08"), func(ctx SpecContext) {
		w.declare(ctx, once(time.Minute), forThread)
		byHand(ctx, store.FiringSucceeded)
		w.pass(ctx, time.Minute)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "no tea")
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
	})
})

var _ = Describe("A one-time effect whose time is long past", Label("EFF-01", "EFF-05"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.thread(ctx)
	})
	const first, last = "0000-01-01T00:00:00Z", "1970-01-01T00:00:00Z"
	complete := func() *metav1.Condition {
		return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)
	}
	at := func(text string) func(*skeinv1.ScheduledEffect) {
		return func(s *skeinv1.ScheduledEffect) {
			due, err := time.Parse(time.RFC3339, text)
			Expect(err).NotTo(HaveOccurred())
			s.Spec.Schedules, s.Spec.At = nil, ptr.To(skeinv1.NewTimestamp(due))
		}
	}
	const exact = int64(1<<53 - 1) // the bounds of integers in the schema
	late := func(s *skeinv1.ScheduledEffect) { s.Spec.StartingDeadlineSeconds = ptr.To(int64(60)) }

	DescribeTable("fires once", func(ctx SpecContext, edits ...func(*skeinv1.ScheduledEffect)) {
		w.declare(ctx, edits...)
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 20*time.Second)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Due", w.s.Spec.At.UnixMicro()), HaveField("Status", store.FiringSucceeded))))
		Expect(w.s.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(w.s.Status.ScheduledAt).To(BeNumerically(">=", -exact), "the API server takes no other")
		Expect(complete()).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonSucceeded))))
	},
		Entry("at the beginning of 1970", at(last)),
		Entry("before it", at("1969-12-31T23:59:59.999999Z")),
		Entry("in the year 1", at("0001-01-01T00:00:01Z")),
		Entry("in its first second", at("0001-01-01T00:00:00.5Z")),
		Entry("at the first time that can be written", at(first)),
		Entry("for a thread", at(last), forThread),
		Entry("for a thread, in the year 1", at("0001-01-01T00:00:01Z"), forThread),
		Entry("for a thread, at the first time that can be written", at(first), forThread),
	)

	DescribeTable("is skipped if it has a deadline", Label("EFF-07"), func(ctx SpecContext, due string) {
		w.declare(ctx, at(due), late)
		w.pass(ctx, 20*time.Second)
		Expect(w.firings(ctx)).To(BeEmpty())
		Expect(complete()).To(HaveValue(HaveField("Reason", skeinv1.ReasonMissed)))
		Expect(w.s.Status.LastSkip).To(HaveValue(HaveField("Time.Time", Not(BeZero()))), "the API server takes no empty time")
	},
		Entry("at the beginning of 1970", last),
		Entry("in the first second of the year 1", "0001-01-01T00:00:00.5Z"),
		Entry("at the first time that can be written", first),
	)

	DescribeTable("or far ahead has a status that the API server takes", Label("K8S-01"), func(ctx SpecContext, edits ...func(*skeinv1.ScheduledEffect)) {
		w.declare(ctx, append(edits, func(s *skeinv1.ScheduledEffect) { s.Generation = 1 })...)
		w.settle(ctx)
		Expect(w.s.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(w.s.Status.ScheduledAt).To(And(BeNumerically("<=", exact), BeNumerically(">=", 0)))
		Expect(w.s.Status.NextTime).To(HaveValue(HaveField("Year()", BeNumerically(">=", 2300))))
	},
		Entry("an effect of one time", at("2300-01-01T00:00:00Z")),
		Entry("an effect for a thread", at("2300-01-01T00:00:00Z"), forThread),
		Entry("a schedule", func(s *skeinv1.ScheduledEffect) {
			at("2300-01-01T00:00:00Z")(s)
			s.Spec.Schedules, s.Spec.StartTime, s.Spec.At = []string{"@yearly"}, s.Spec.At, nil
		}),
	)

	It("does not say that it has succeeded when nothing says so", Label("EFF-07"), func(ctx SpecContext) {
		w.declare(ctx, at(last))
		Expect(w.Store.RecordDue(ctx, store.DueRecord{Schedule: store.EffectSchedule{EffectID: string(w.s.UID), Namespace: Namespace, Name: w.s.Name, Fingerprint: "an earlier release's", Cursor: w.Clock.Now().UnixMicro()}})).To(Succeed())
		w.pass(ctx, 2*time.Second)
		Expect(complete()).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonUnknown), HaveField("Message", ContainSubstring("it is not known whether it fired")))))
	})
})
