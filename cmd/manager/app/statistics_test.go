package app

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
)

// slowStore has counts of so many steps, each of which takes a time.
type slowStore struct {
	store.StatisticsStore
	clock *testingclock.FakeClock
	steps int
	each  time.Duration
	fails error // of the next step

	begun, done int // counts, and steps of all of them
}

func (s *slowStore) Count() store.Count {
	s.begun++
	return &slowCount{store: s, left: s.steps}
}

type slowCount struct {
	store *slowStore
	left  int
}

func (c *slowCount) Step(context.Context) (bool, error) {
	c.store.clock.Step(c.store.each)
	if err := c.store.fails; err != nil {
		c.store.fails = nil
		return false, err
	}
	c.store.done++
	c.left--
	return c.left == 0, nil
}

func (*slowCount) Rows() map[string]int64 { return map[string]int64{"message": 7} }
func (*slowCount) ContentsBytes() int64   { return 8 }

var _ = Describe("The metrics of what is stored", Label("K8S-06"), func() {
	var (
		s  *slowStore
		st *statistics
	)
	BeforeEach(func() {
		metrics.ForgetStored()
		DeferCleanup(metrics.ForgetStored)
		clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		s = &slowStore{clock: clock, steps: 6, each: 4 * time.Millisecond}
		st = &statistics{store: s, clock: clock}
	})
	// shown returns what the metrics say of messages, and of the contents of files.
	shown := func() (rows, bytes float64) {
		GinkgoHelper()
		registry := prometheus.NewRegistry()
		Expect(metrics.Register(registry)).To(Succeed())
		families, err := registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			switch f.GetName() {
			case "skein_store_rows":
				rows = f.Metric[0].GetGauge().GetValue()
			case "skein_contents_bytes":
				bytes = f.Metric[0].GetGauge().GetValue()
			}
		}
		return rows, bytes
	}

	It("are counted for a thousandth of the time, over as many measurements as it takes, and shown once all is counted", func(ctx SpecContext) {
		Expect(st.goOnCounting(ctx)).To(Succeed())
		Expect(s.done).To(Equal(4), "no step begins after 15 ms")
		rows, bytes := shown()
		Expect([]float64{rows, bytes}).To(Equal([]float64{0, 0}))
		Expect(st.goOnCounting(ctx)).To(Succeed())
		Expect([]int{s.begun, s.done}).To(Equal([]int{1, 6}))
		rows, bytes = shown()
		Expect([]float64{rows, bytes}).To(Equal([]float64{7, 8}))
	})

	It("are counted anew ten minutes after the last count began", func(ctx SpecContext) {
		s.steps = 1
		Expect(st.goOnCounting(ctx)).To(Succeed())
		s.clock.Step(countEvery - s.each - time.Millisecond)
		Expect(st.goOnCounting(ctx)).To(Succeed())
		Expect(s.begun).To(Equal(1))
		s.clock.Step(time.Millisecond)
		Expect(st.goOnCounting(ctx)).To(Succeed())
		Expect(s.begun).To(Equal(2))
	})

	It("are counted on after an error", func(ctx SpecContext) {
		away := errors.New("the database is away")
		s.fails = away
		Expect(st.goOnCounting(ctx)).To(MatchError(away))
		for range 2 {
			Expect(st.goOnCounting(ctx)).To(Succeed())
		}
		Expect([]int{s.begun, s.done}).To(Equal([]int{1, 6}))
	})
})
