package scheduledeffect_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

// endRun sets how the run of the newest Thread ended, and when the Thread was terminated; 0 if it was not.
func (w *world) endRun(ctx context.Context, run *skeinv1.RunStatus, terminatedAt int64) *skeinv1.Thread {
	GinkgoHelper()
	var threads skeinv1.ThreadList
	Expect(w.Client.List(ctx, &threads)).To(Succeed())
	Expect(threads.Items).NotTo(BeEmpty())
	t := &threads.Items[len(threads.Items)-1]
	t.Status.LastRun, t.Status.TerminatedAt = run, terminatedAt
	Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
	return t
}

var _ = Describe("A firing of a template whose Thread has ended", Label("EFF-03", "EFF-06", "EFF-08"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.PauseAfterFailures, s.Spec.FailedHistoryLimit = ptr.To(int32(1)), ptr.To(int32(2))
		})
		w.pass(ctx, time.Minute)
	})

	DescribeTable("is canceled, which is no failure, when a person ended the Thread", func(ctx SpecContext, run *skeinv1.RunStatus, terminated bool, why string) {
		at := int64(0)
		if terminated {
			at = w.Clock.Now().UnixMicro()
		}
		w.endRun(ctx, run, at)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringCanceled), HaveField("Error", why))))
		w.pass(ctx, time.Minute)
		Expect(w.s.Status).To(And(HaveField("Phase", "Active"), HaveField("LastOutcome", "Canceled")))
		Expect(w.firings(ctx)).To(HaveLen(2), "the schedule goes on")
	},
		Entry("terminated while it ran", &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunTerminated, Reason: skeinv1.ReasonTerminated}, true, `Thread "s-29539441" was terminated`),
		Entry("terminated before its run was over", &skeinv1.RunStatus{ID: "r"}, true, `Thread "s-29539441" was terminated`),
		Entry("terminated before its first run", nil, true, `Thread "s-29539441" was terminated`),
		Entry("deleted, while its data stays", &skeinv1.RunStatus{ID: "r", Outcome: skeinv1.RunStopped, Reason: skeinv1.ReasonThreadDeleted}, false, "its Thread was deleted before its run ended"),
	)

	DescribeTable("has failed when the run has", func(ctx SpecContext, outcome skeinv1.RunOutcome, reason string) {
		w.endRun(ctx, &skeinv1.RunStatus{ID: "r", Outcome: outcome, Reason: reason}, 0)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", store.FiringFailed), HaveField("Error", `the run of Thread "s-29539441" ended: `+string(outcome)+" "+reason))))
		w.pass(ctx, time.Minute)
		Expect(w.s.Status.Phase).To(Equal("Paused"))
	},
		Entry("failed", skeinv1.RunFailed, "ModelError"),
		Entry("was stopped", skeinv1.RunStopped, skeinv1.ReasonStoppedByUser),
	)

	It("keeps a Thread that was terminated, as the history limits say", func(ctx SpecContext) {
		var ended []*skeinv1.Thread
		for range 3 {
			ended = append(ended, w.endRun(ctx, nil, w.Clock.Now().UnixMicro()))
			w.pass(ctx, time.Minute)
		}
		var left skeinv1.ThreadList
		Expect(w.Client.List(ctx, &left, client.InNamespace(Namespace))).To(Succeed())
		var names []string
		for i := range left.Items {
			names = append(names, left.Items[i].Name)
		}
		Expect(names).To(HaveLen(3))
		Expect(names).To(ContainElements(ended[1].Name, ended[2].Name), "beside that of the firing under way")
	})
})

var _ = Describe("A firing of a template whose Thread has a second run", Label("EFF-03", "EFF-08"), func() {
	var w *world
	var t *skeinv1.Thread
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.declare(ctx, fromTemplate, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ConcurrencyPolicy, s.Spec.Timeout = skeinv1.ConcurrencyForbid, &metav1.Duration{Duration: 90 * time.Second}
		})
		w.pass(ctx, time.Minute)
		t = w.endRun(ctx, nil, 0)
		_, _, err := w.Store.CreateThread(ctx, store.Thread{ID: t.ThreadID(), Namespace: t.Namespace, Name: t.Name, Agent: "analyst"})
		Expect(err).NotTo(HaveOccurred())
	})
	runs := func(ctx context.Context, id string, status store.RunStatus) {
		GinkgoHelper()
		Expect(w.Store.Apply(ctx, t.ThreadID(), nil, &store.PutRun{Run: store.Run{ID: id, Agent: "analyst", Status: status, Reason: "Because"}})).To(Succeed())
	}

	DescribeTable("ends with the first one", func(ctx SpecContext, first store.RunStatus, want store.FiringStatus, text string) {
		runs(ctx, "a", first)
		runs(ctx, "b", store.RunRunning)
		w.endRun(ctx, &skeinv1.RunStatus{ID: "b"}, 0)
		w.settle(ctx)
		Expect(w.firings(ctx)).To(ConsistOf(And(HaveField("Status", want), HaveField("Error", HaveSuffix(text)))))
		w.pass(ctx, 119*time.Second)
		Expect(w.fired(ctx)).To(HaveLen(2), "the next one is not forbidden")
		Expect(w.Engine.Terminated).To(BeEmpty())
	},
		Entry("that succeeded", store.RunSucceeded, store.FiringSucceeded, ""),
		Entry("that failed", store.RunFailed, store.FiringFailed, "ended: Failed Because"),
	)

	It("ends with the first one when the second has ended, too", func(ctx SpecContext) {
		runs(ctx, "a", store.RunFailed)
		runs(ctx, "b", store.RunSucceeded)
		w.endRun(ctx, &skeinv1.RunStatus{ID: "b", Outcome: skeinv1.RunSucceeded}, 0)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule failed"}))
	})

	It("has not timed out when the first one ended in time and the status of the Thread does not show it", func(ctx SpecContext) {
		runs(ctx, "a", store.RunRunning)
		w.endRun(ctx, &skeinv1.RunStatus{ID: "a"}, 0)
		w.settle(ctx)
		Expect(w.fired(ctx)).To(Equal([]string{"1m0s schedule running"}))
		runs(ctx, "a", store.RunSucceeded)
		runs(ctx, "b", store.RunRunning)
		w.pass(ctx, 100*time.Second)
		Expect(w.firings(ctx)[0].Status).To(Equal(store.FiringSucceeded))
		Expect(w.Engine.Terminated).To(BeEmpty())
	})
})
