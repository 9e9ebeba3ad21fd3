package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.thread(ctx)
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
