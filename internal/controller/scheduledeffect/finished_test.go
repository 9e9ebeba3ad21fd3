package scheduledeffect_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/scheduledeffect"
	"github.com/skein-dev/skein/internal/store"
)

// once makes a ScheduledEffect fire at one time only.
func once(d time.Duration) func(*skeinv1.ScheduledEffect) {
	return func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules, s.Spec.At = nil, at(d) }
}

// forThread makes a ScheduledEffect fire for the Thread t.
func forThread(s *skeinv1.ScheduledEffect) { s.Spec.ThreadRef = &skeinv1.LocalRef{Name: "t"} }

// fromTemplate makes a ScheduledEffect create Threads of the agent analyst.
func fromTemplate(s *skeinv1.ScheduledEffect) {
	s.Spec.Effect = ""
	s.Spec.ThreadTemplate = &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "analyst"}, Message: "go"}}
}

// gone reports whether the object does not exist any more.
func (w *world) gone(ctx context.Context) bool {
	GinkgoHelper()
	err := w.Client.Get(ctx, client.ObjectKeyFromObject(w.s), &skeinv1.ScheduledEffect{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return apierrors.IsNotFound(err)
}

// idle lets time pass while nothing but the reconciler itself asks for another reconcile. It ends when the object is gone, or nothing asks.
func (w *world) idle(ctx context.Context) {
	GinkgoHelper()
	for range 20 {
		next := w.settle(ctx)
		if next == 0 || w.gone(ctx) {
			return
		}
		w.Clock.Step(next)
	}
}

// endThreads ends the first runs of all Threads.
func (w *world) endThreads(ctx context.Context) {
	GinkgoHelper()
	var threads skeinv1.ThreadList
	Expect(w.Client.List(ctx, &threads)).To(Succeed())
	for i := range threads.Items {
		threads.Items[i].Status.LastRun = &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunSucceeded}
		Expect(w.Client.Status().Update(ctx, &threads.Items[i])).To(Succeed())
	}
}

var _ = Describe("A ScheduledEffect that has finished", Label("EFF-04"), func() {
	keep := func(s *skeinv1.ScheduledEffect) { s.Spec.TTLSecondsAfterFinished = ptr.To(int32(5)) }
	var w *world
	var thread *skeinv1.Thread
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		thread = w.thread(ctx)
	})

	DescribeTable("is deleted when its time is over, although nothing else happens", func(ctx SpecContext, edits ...func(*skeinv1.ScheduledEffect)) {
		for _, restart := range []bool{false, true} {
			w.declare(ctx, append(edits, keep)...)
			w.settle(ctx)
			ended := w.Clock.Now()
			Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
			w.endThreads(ctx)
			if restart {
				w.pass(ctx, 2*time.Second) // the limit of status writes
				Expect(w.s.Status.Phase).To(Equal("Finished"))
				w.r = scheduledeffect.New(w.r.Options)
			}
			w.idle(ctx)
			Expect(w.gone(ctx)).To(BeTrue(), "restart: %v", restart)
			Expect(w.Clock.Now()).To(BeTemporally("==", ended.Add(5*time.Second)))
		}
	},
		Entry("a message", once(0), forThread, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.Message = "", &skeinv1.EffectMessage{Content: "x"}
		}),
		Entry("a call of a tool", once(0), func(s *skeinv1.ScheduledEffect) {
			s.Spec.Effect, s.Spec.CallTool = "", &skeinv1.EffectToolCall{Name: "x"}
		}),
		Entry("without a thread", once(0)),
		Entry("with a deadline", once(0), forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.StartingDeadlineSeconds = ptr.To(int64(60)) }),
		Entry("Threads from a template", once(0), fromTemplate),
		Entry("a schedule that ran out", func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.RunOnCreation, s.Spec.MaxFirings = []string{"@yearly"}, true, ptr.To(int64(1))
		}),
	)

	It("is deleted when it was suspended over its time, or run by hand", Label("EFF-08"), func(ctx SpecContext) {
		w.declare(ctx, once(time.Second), forThread, keep, func(s *skeinv1.ScheduledEffect) { s.Spec.Suspend = true })
		w.idle(ctx)
		Expect(w.gone(ctx)).To(BeTrue())
		Expect(w.Clock.Now()).To(BeTemporally("==", Start.Add(6*time.Second)))

		w.declare(ctx, once(0), forThread, keep)
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.idle(ctx)
		Expect(w.gone(ctx)).To(BeTrue())
	})

	DescribeTable("says why it did not fire, and keeps to when that was", Label("EFF-07"), func(ctx SpecContext, reason string, edits ...func(*skeinv1.ScheduledEffect)) {
		w.declare(ctx, append(edits, forThread)...)
		w.pass(ctx, 10*time.Second)
		ended := w.s.Status.CompletionTime
		Expect(ended).To(HaveValue(HaveField("Time", BeTemporally("<=", Start.Add(time.Second)))))
		why := And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason), HaveField("Message", ContainSubstring("did not fire: "+reason)))
		complete := func() *metav1.Condition {
			return meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)
		}
		Expect(complete()).To(HaveValue(why))
		for _, label := range []string{"a", "b"} { // an edit that gives it nothing to do
			w.Clock.Step(30 * time.Second)
			w.r = scheduledeffect.New(w.r.Options)
			w.s.Generation++
			w.s.Labels = map[string]string{"x": label}
			Expect(w.Client.Update(ctx, w.s)).To(Succeed())
			w.settle(ctx)
			Expect(w.s.Status.ObservedGeneration).To(Equal(w.s.Generation))
			Expect(w.s.Status.CompletionTime).To(Equal(ended))
			Expect(complete()).To(HaveValue(why))
		}
		w.Clock.Step(time.Second)
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.CompletionTime).To(HaveValue(HaveField("Time", BeTemporally(">", ended.Time))), "it ran by hand")
		Expect(complete()).To(HaveValue(why))
	},
		Entry("too late", skeinv1.ReasonMissed, once(-time.Hour), func(s *skeinv1.ScheduledEffect) { s.Spec.StartingDeadlineSeconds = ptr.To(int64(5)) }),
		Entry("too late, without a history", skeinv1.ReasonMissed, once(-time.Hour), func(s *skeinv1.ScheduledEffect) {
			s.Spec.StartingDeadlineSeconds, s.Spec.FailedHistoryLimit = ptr.To(int64(5)), ptr.To(int32(0))
		}),
		Entry("suspended", skeinv1.ReasonSuspended, once(time.Second), func(s *skeinv1.ScheduledEffect) { s.Spec.Suspend = true }),
	)

	DescribeTable("says how that was when the record has gone with its thread, as far as it is known", Label("EFF-07"), func(ctx SpecContext, told bool, reason string) {
		thread.Status.ThreadID = string(thread.UID)
		Expect(w.Client.Status().Update(ctx, thread)).To(Succeed())
		w.declare(ctx, once(0), func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadSelector = &metav1.LabelSelector{} })
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringFailed, "broken")
		if told {
			w.pass(ctx, 2*time.Second)
		}
		Expect(w.Store.PurgeThread(ctx, string(thread.UID))).Error().NotTo(HaveOccurred())
		Expect(w.firings(ctx)).To(BeEmpty())
		w.r = scheduledeffect.New(w.r.Options)
		w.s.Generation++ // an edit that gives it nothing to do
		w.s.Labels = map[string]string{"x": "edited"}
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Finished"))
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", reason))))
		Expect(hasFailed(w.s)).To(Equal(told))
	},
		Entry("the status had said it", true, skeinv1.ReasonFailed),
		Entry("the status had not said it yet", false, skeinv1.ReasonUnknown),
	)

	It("has finished when it did not fire, although it had run by hand before", Label("EFF-07", "EFF-08"), func(ctx SpecContext) {
		w.declare(ctx, once(10*time.Second), forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.Suspend = true })
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 12*time.Second)
		Expect(w.s.Status.CompletionTime).To(HaveValue(HaveField("Time", BeTemporally("==", Start.Add(10*time.Second)))))
	})

	It("with schedules keeps to when that was", Label("EFF-03"), func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.EndTime, s.Spec.Suspend = at(time.Minute), true
		})
		w.pass(ctx, 2*time.Minute)
		ended := w.s.Status.CompletionTime
		Expect(ended).To(HaveValue(HaveField("Time", BeTemporally("==", Start.Add(time.Minute)))))
		Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(HaveField("Reason", skeinv1.ReasonSucceeded)))
		w.pass(ctx, time.Minute)
		Expect(w.s.Status.CompletionTime).To(Equal(ended))
	})

	DescribeTable("has nothing next and nothing under way when its thread is terminated", Label("EFF-06"), func(ctx SpecContext, policy skeinv1.ConcurrencyPolicy, fired ...string) {
		w.declare(ctx, forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = policy })
		w.pass(ctx, 135*time.Second)
		Expect(w.s.Status).To(And(HaveField("NextTime", Not(BeNil())), HaveField("FiredAt", BeNumerically(">", 0)), HaveField("Active", BeNumerically(">", 0))))
		Expect(w.Store.Apply(ctx, w.s.Labels[skeinv1.LabelThreadID], nil, &store.Terminate{})).To(Succeed())
		for range 2 { // also after a start of the manager
			w.pass(ctx, 2*time.Second)
			Expect(w.s.Status).To(And(HaveField("Phase", "Canceled"), HaveField("NextTime", BeNil()), HaveField("Active", BeZero()), HaveField("LastOutcome", "Canceled")))
			Expect(meta.FindStatusCondition(w.s.Status.Conditions, skeinv1.ConditionComplete)).To(HaveValue(HaveField("Message", ContainSubstring("the thread was terminated"))))
			Expect(w.fired(ctx)).To(Equal(fired))
			Expect(w.firings(ctx)).To(HaveEach(HaveField("Error", "the thread was terminated")))
			w.r = scheduledeffect.New(w.r.Options)
		}
	},
		Entry("while one firing waited for another", skeinv1.ConcurrencyQueue, "1m0s schedule canceled", "2m0s schedule canceled"),
		Entry("while several firings were under way", skeinv1.ConcurrencyAllow, "1m0s schedule canceled", "2m0s schedule canceled"),
		Entry("while one firing was under way", skeinv1.ConcurrencyForbid, "1m0s schedule canceled"),
	)

	It("has nothing under way any more that a release before this one left so", Label("EFF-06"), func(ctx SpecContext) {
		w.declare(ctx, forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.ConcurrencyPolicy = skeinv1.ConcurrencyQueue })
		w.pass(ctx, 135*time.Second)
		Expect(w.Store.Apply(ctx, w.s.Labels[skeinv1.LabelThreadID], nil, &store.Terminate{})).To(Succeed())
		ended := metav1.NewTime(w.Clock.Now().Truncate(time.Second))
		w.s.Status.Phase, w.s.Status.CompletionTime, w.s.Status.Active = "Canceled", &ended, 2
		Expect(w.Client.Status().Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, 5*time.Second)
		Expect(w.s.Status).To(And(HaveField("Active", BeZero()), HaveField("CompletionTime", HaveValue(HaveField("Time", BeTemporally("==", ended.Time))))))
		Expect(w.firings(ctx)).To(HaveEach(HaveField("Status", store.FiringCanceled)))
	})

	It("with schedules stays while what an edit says is wrong, and says so", Label("EFF-03"), func(ctx SpecContext) {
		w := newWorld(ctx)
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.MaxFirings, s.Spec.TTLSecondsAfterFinished = ptr.To(int64(1)), ptr.To(int32(60))
		})
		w.s.Generation = 1
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, time.Minute)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.pass(ctx, 10*time.Second)
		Expect(w.s.Status.Phase).To(Equal("Finished"))

		right := w.s.Spec.Schedules
		w.s.Generation, w.s.Spec.MaxFirings, w.s.Spec.Schedules = 2, ptr.To(int64(3)), []string{"61 * * * *"}
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, 5*time.Minute)
		Expect(w.gone(ctx)).To(BeFalse())
		Expect(w.s.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("61")))))

		w.s.Generation, w.s.Spec.MaxFirings, w.s.Spec.Schedules = 3, ptr.To(int64(1)), right
		Expect(w.Client.Update(ctx, w.s)).To(Succeed())
		w.pass(ctx, 2*time.Minute)
		Expect(w.gone(ctx)).To(BeTrue(), "the edit gave it nothing more to do")
	})

	It("with schedules stays when it has no time to live", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.RunOnCreation, s.Spec.MaxFirings = []string{"@yearly"}, true, ptr.To(int64(1))
		})
		w.settle(ctx)
		Finish(ctx, w.Env, w.s, store.FiringSucceeded, "")
		w.idle(ctx)
		Expect(w.s.Status.Phase).To(Equal("Finished"))
		Expect(w.gone(ctx)).To(BeFalse())
	})
})

var _ = Describe("An effect of one time for several threads", Label("EFF-03", "EFF-07"), func() {
	DescribeTable("has succeeded only if it has for each of them", func(ctx SpecContext, reason string, ends ...store.FiringStatus) {
		w := newWorld(ctx)
		for i := range ends {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t", i))}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.ThreadSelector, s.Spec.At = nil, &metav1.LabelSelector{}, ptr.To(skeinv1.NewTimestamp(Start.Add(time.Minute)))
			s.Spec.SuccessfulHistoryLimit, s.Spec.FailedHistoryLimit = ptr.To[int32](0), ptr.To[int32](0)
		})
		w.pass(ctx, 2*time.Minute)
		all, err := w.Store.ClaimFirings(ctx, "w", time.Minute, map[string]int{Namespace: len(ends)})
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(len(ends)))
		for i, f := range all {
			w.Clock.Step(time.Second)
			if ends[i] == store.FiringCanceled {
				Expect(w.Store.CancelFirings(ctx, "the thread was terminated", f.Key())).To(Equal(1))
				continue
			}
			Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: ends[i]})).To(Succeed())
		}
		w.pass(ctx, time.Second)
		Expect(w.s.Status.Phase).To(Equal("Finished"))
		Expect(w.s.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionComplete), HaveField("Reason", reason))))
		Expect(hasFailed(w.s)).To(Equal(reason == skeinv1.ReasonFailed))
	},
		Entry("the first failed", skeinv1.ReasonFailed, store.FiringFailed, store.FiringSucceeded),
		Entry("the last failed", skeinv1.ReasonFailed, store.FiringSucceeded, store.FiringFailed),
		Entry("one failed, and one was canceled later", skeinv1.ReasonFailed, store.FiringFailed, store.FiringSucceeded, store.FiringCanceled),
		Entry("one thread was terminated", skeinv1.ReasonSucceeded, store.FiringSucceeded, store.FiringCanceled),
		Entry("all threads were terminated", skeinv1.ReasonCanceled, store.FiringCanceled, store.FiringCanceled),
	)
})
