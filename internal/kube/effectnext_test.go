package kube_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/kubetest"
)

var _ = Describe("The next due times of an effect", Label("EFF-08"), func() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	minutes := func(n ...int64) (times []int64) {
		for _, m := range n {
			times = append(times, now.Add(time.Duration(m)*time.Minute).UnixMicro())
		}
		return times
	}
	next := func(ctx SpecContext, edit func(*skeinv1.ScheduledEffect)) []int64 {
		GinkgoHelper()
		c := kubetest.Cluster(interceptor.Funcs{})
		s := &skeinv1.ScheduledEffect{ObjectMeta: kubetest.Meta("s")}
		s.UID, s.CreationTimestamp = "u", metav1.NewTime(now)
		edit(s)
		Expect(c.Create(ctx, s)).To(Succeed())
		times, err := kube.NewEffects(c, c, nil, testingclock.NewFakePassiveClock(now), kube.NewEffectQuota(0, 0)).Next(ctx, s.Namespace, "s", 3)
		Expect(err).NotTo(HaveOccurred())
		return times
	}
	DescribeTable("are those that it has left", func(ctx SpecContext, want []int64, edit func(*skeinv1.ScheduledEffect)) {
		Expect(next(ctx, edit)).To(Equal(want))
	},
		Entry("of a schedule", minutes(60, 120, 180), func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{"@hourly"} }),
		Entry("of a schedule that is suspended", minutes(60, 120, 180), func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.Suspend, s.Status.Phase = []string{"@hourly"}, true, "Suspended"
		}),
		Entry("until it has fired as often as it may", minutes(60, 120), func(s *skeinv1.ScheduledEffect) {
			s.Spec.Schedules, s.Spec.MaxFirings, s.Status.Fired = []string{"@hourly"}, ptr.To(int64(5)), 3
		}),
		Entry("of one time", minutes(7), func(s *skeinv1.ScheduledEffect) { s.Spec.At = ptr.To(skeinv1.NewTimestamp(now.Add(7 * time.Minute))) }),
		Entry("none when it is over", nil, func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules, s.Status.Phase = []string{"@hourly"}, "Finished" }),
		Entry("none when its times are wrong", nil, func(s *skeinv1.ScheduledEffect) { s.Spec.Schedules = []string{"70 * * * *"} }),
	)
})
