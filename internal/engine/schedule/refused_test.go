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

// TestRefusedWait expects that a thread waits longer after each refusal at its time, and not longer for what has it tried before.
func TestRefusedWait(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := schedule.NewRefused(clock, 5*time.Second)
	for i, want := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		got := r.Add("a")
		if got != want {
			t.Errorf("wait %d is %v, want %v", i, got, want)
		}
		if i != 0 { // the second refusal comes at once
			clock.SetTime(clock.Now().Add(got))
		}
	}
	clock.SetTime(clock.Now().Add(4 * time.Second))
	r.Expire()
	if got := r.Add("a"); got != 5*time.Second {
		t.Errorf("a thread that waits was forgotten: the next wait is %v", got)
	}
	r.Forget("a")
	if got := r.Add("a"); got != time.Second {
		t.Errorf("the first wait is %v", got)
	}
}
