package app

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestEveryWorksSoonAndThenAtEachInterval(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		after    []time.Duration // between two times of work
	}{
		{time.Hour, []time.Duration{firstAfter, time.Hour, time.Hour}},
		{time.Second, []time.Duration{time.Second, time.Second, time.Second}},
	} {
		t.Run(c.interval.String(), func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			worked := make(chan time.Time)
			done := make(chan error)
			go func() {
				done <- every(ctx, clock, c.interval, func(context.Context) { worked <- clock.Now() })
			}()
			for _, after := range c.after {
				g.Eventually(clock.HasWaiters).Should(BeTrue())
				due := clock.Now().Add(after)
				clock.Step(after - time.Nanosecond)
				g.Expect(worked).NotTo(Receive())
				clock.Step(time.Nanosecond)
				g.Eventually(worked).Should(Receive(Equal(due)))
			}
			cancel()
			g.Eventually(done).Should(Receive(BeNil()))
		})
	}
}
