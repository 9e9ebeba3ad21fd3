package scheduledeffect_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/engine/effects"
)

var _ = Describe("The firings of a due time for many threads", Label("EFF-03"), func() {
	DescribeTable("begin one after the other, as threadsPerSecond says", func(ctx SpecContext, perSecond int32, spacing time.Duration) {
		w := newWorld(ctx)
		for i := range 5 {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t", i))}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ThreadSelector, s.Spec.ThreadsPerSecond = &metav1.LabelSelector{}, perSecond
		})
		w.pass(ctx, time.Minute)
		due := w.Clock.Now()
		// begins claims what may begin, and returns how much that is.
		begins := func(ctx context.Context) int {
			GinkgoHelper()
			claimed, err := w.Store.ClaimFirings(ctx, "w", time.Hour, map[string]int{Namespace: 100})
			Expect(err).NotTo(HaveOccurred())
			return len(claimed)
		}
		if spacing == 0 {
			Expect(begins(ctx)).To(Equal(5))
			return
		}
		for i := range 5 {
			w.Clock.SetTime(due.Add(time.Duration(i)*spacing - time.Microsecond))
			Expect(begins(ctx)).To(BeZero(), "before thread %d", i)
			w.Clock.SetTime(due.Add(time.Duration(i) * spacing))
			Expect(begins(ctx)).To(Equal(1), "thread %d", i)
		}
	},
		Entry("20, the default", int32(20), 50*time.Millisecond),
		Entry("4", int32(4), 250*time.Millisecond),
		Entry("1", int32(1), time.Second),
		Entry("of an object without the default", int32(0), time.Duration(0)),
	)

	It("are not late because they wait for their turn", Label("EFF-05"), func(ctx SpecContext) {
		w := newWorld(ctx)
		for i := range 5 {
			t := &skeinv1.Thread{ObjectMeta: Meta(fmt.Sprint("t", i))}
			w.Create(ctx, t)
			t.Status.ThreadID = string(t.UID)
			Expect(w.Client.Status().Update(ctx, t)).To(Succeed())
		}
		w.declare(ctx, func(s *skeinv1.ScheduledEffect) {
			s.Spec.ThreadSelector, s.Spec.ThreadsPerSecond, s.Spec.StartingDeadlineSeconds = &metav1.LabelSelector{}, 1, ptr.To(int64(2))
		})
		w.pass(ctx, time.Minute)
		Expect(w.firings(ctx)).To(HaveLen(5))
		for _, f := range w.firings(ctx) {
			target, err := effects.TargetOf(&f)
			Expect(err).NotTo(HaveOccurred())
			Expect(target.Deadline).To(Equal(2 * time.Second))
			Expect(target.Jitter).To(Equal(time.UnixMicro(f.AvailableAt).Sub(time.UnixMicro(f.Due))), "the delay that the schedule adds is no lateness")
		}
	})

	It("is one, at once, for a thread that is named", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.thread(ctx)
		w.declare(ctx, forThread, func(s *skeinv1.ScheduledEffect) { s.Spec.ThreadsPerSecond = 1 })
		w.pass(ctx, 2*time.Minute)
		for _, f := range w.firings(ctx) {
			Expect(f.AvailableAt).To(Equal(f.Due))
		}
	})
})
