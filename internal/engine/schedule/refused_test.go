package schedule_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/schedule"
)

// TestRefused expects that refused threads are left alone until their time is up, or until they were processed.
func TestRefused(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := schedule.NewRefused(clock, time.Minute)
	expect := func(id string, want bool) {
		t.Helper()
		if got := r.Has(id); got != want {
			t.Errorf("Has(%q) = %v, want %v", id, got, want)
		}
	}
	r.Add("a")
	r.Add("b")
	expect("a", true)
	expect("c", false)
	r.Forget("b")
	expect("b", false)
	clock.SetTime(clock.Now().Add(59 * time.Second))
	r.Expire()
	expect("a", true)
	clock.SetTime(clock.Now().Add(time.Second))
	expect("a", false)
	r.Expire()
	r.Add("a")
	expect("a", true)
}
