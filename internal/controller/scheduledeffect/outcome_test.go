package scheduledeffect_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The outcome of many firings", Label("EFF-07"), func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })
	selected := func(ctx context.Context, n int) func(*skeinv1.ScheduledEffect) {
		GinkgoHelper()
		for i := range n {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t", i))}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		return func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadSelector = &metav1.LabelSelector{} }
	}
	claim := func(ctx context.Context) []store.Firing {
		GinkgoHelper()
		claimed, err := w.Store.ClaimFirings(ctx, "w", time.Hour, map[string]int{Namespace: 100})
		Expect(err).NotTo(HaveOccurred())
		slices.SortFunc(claimed, func(a, b store.Firing) int { return strings.Compare(a.ThreadID, b.ThreadID) })
		return claimed
	}
	finish := func(ctx context.Context, status store.FiringStatus, firings ...store.Firing) {
		GinkgoHelper()
		for _, f := range firings {
			Expect(w.Store.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: status})).To(Succeed())
		}
	}

	It("is that of the firing that ended last, whichever thread it was for", func(ctx SpecContext) {
		w.declare(ctx, selected(ctx, 25))
		w.pass(ctx, time.Minute)
		all := claim(ctx)
		Expect(all).To(HaveLen(25))
		finish(ctx, store.FiringSucceeded, all[:24]...)
		w.Clock.Step(time.Second)
		finish(ctx, store.FiringFailed, all[24])
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.LastOutcome).To(Equal("Failed"))
	})

	It("is known while many later ones are under way", func(ctx SpecContext) {
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{"@every 1s"} })
		w.pass(ctx, time.Second)
		first := claim(ctx)
		w.pass(ctx, 29*time.Second)
		finish(ctx, store.FiringSucceeded, first...)
		w.pass(ctx, 2*time.Second)
		Expect(w.s.Status.Active).To(BeNumerically(">", 20))
		Expect(w.s.Status.LastOutcome).To(Equal("Succeeded"))
	})

	DescribeTable("of a run by hand makes a failure good when it is a success for each thread", Label("EFF-08"), func(ctx SpecContext, last store.FiringStatus, failed bool) {
		w.declare(ctx, once(0), selected(ctx, 25), func(s *skeinv1.ScheduledEffect) { s.Spec.TTLSecondsAfterFinished = ptr.To(int32(3600)) })
		w.settle(ctx)
		finish(ctx, store.FiringFailed, claim(ctx)...)
		w.pass(ctx, 2*time.Second)
		Expect(hasFailed(w.s)).To(BeTrue())
		w.ask(ctx, skeinv1.AnnotationRunAt, w.Clock.Now().Format(time.RFC3339Nano))
		w.settle(ctx)
		again := claim(ctx)
		Expect(again).To(HaveLen(25))
		finish(ctx, store.FiringSucceeded, again[:24]...)
		finish(ctx, last, again[24])
		w.pass(ctx, 3*time.Second)
		Expect(hasFailed(w.s)).To(Equal(failed))
	},
		Entry("all", store.FiringSucceeded, false),
		Entry("all but one", store.FiringFailed, true),
	)
})
