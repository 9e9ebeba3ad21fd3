package store_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func TestFiredTimesOfASteadyScheduleAreFewBytes(t *testing.T) {
	g := NewWithT(t)
	var times store.FiredTimes
	hour := time.Hour.Microseconds()
	for n := range int64(10_000) {
		if n%1000 != 7 { // which did not fire
			times.Add(n * hour)
		}
	}
	data, err := json.Marshal(times)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(data)).To(BeNumerically("<", 2000))
	for n := range int64(10_001) {
		g.Expect(times.Has(n*hour)).To(Equal(n%1000 != 7 && n < 10_000), "hour %d", n)
		g.Expect(times.Has(n*hour+1)).To(BeFalse(), "after hour %d", n)
	}
}

func TestFiredTimesAreExactUntilTheyAreTooMany(t *testing.T) {
	g := NewWithT(t)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test that can be repeated
		var times store.FiredTimes
		fired := map[int64]bool{}
		for range 300 {
			due := 1 + r.Int64N(2000)
			times.Add(due)
			fired[due] = true
		}
		for due := range int64(2100) {
			g.Expect(times.Has(due)).To(Equal(fired[due]), "seed %d, due %d", seed, due)
		}
	}
}

func TestFiredTimesForgetOnTheSafeSide(t *testing.T) {
	g := NewWithT(t)
	var times store.FiredTimes
	fired := map[int64]bool{}
	for n := range int64(5000) {
		times.Add(n * n)
		fired[n*n] = true
	}
	g.Expect(len(times.Runs)).To(BeNumerically("<=", 500))
	g.Expect(times.Until).To(BeNumerically(">", 0))
	for due := range int64(5000 * 5000) {
		if fired[due] && !times.Has(due) {
			t.Fatalf("%d fired", due)
		}
		if due > times.Until && !fired[due] && times.Has(due) {
			t.Fatalf("%d did not fire", due)
		}
		if due > times.Until+100_000 {
			break
		}
	}
}
