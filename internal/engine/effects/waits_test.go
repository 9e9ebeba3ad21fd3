package effects

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// noted is a store that notes what claimed firings wait for.
type noted struct {
	store.Store
	mu    sync.Mutex
	texts []string
	err   error
}

func (s *noted) WaitFiring(_ context.Context, c store.FiringClaim, namespace, waiting string) error {
	if c != (store.FiringClaim{Key: store.FiringKey{EffectID: "e", Due: 1, ThreadID: "t"}, Epoch: 7}) || namespace != "n" {
		return errors.New("of another firing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, waiting)
	return s.err
}

func (s *noted) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.texts...)
}

// TestWaits covers EFF-07: a firing says what an attempt of it waits for, once it has waited for a while.
func TestWaits(t *testing.T) {
	begin := func(t *testing.T, waiting string) (*GomegaWithT, *waits, *noted, *clocktesting.FakeClock) {
		st, clock := &noted{}, clocktesting.NewFakeClock(noon)
		w := NewWorker(Options{Store: st, Clock: clock, Log: logr.Discard()})
		return NewWithT(t), w.newWaits(t.Context(), &store.Firing{EffectID: "e", Due: 1, ThreadID: "t", Namespace: "n", Epoch: 7, Waiting: waiting}), st, clock
	}

	t.Run("a short wait costs no write", func(t *testing.T) {
		g, n, st, clock := begin(t, "")
		n.tell("full")
		clock.Step(noteAfter - time.Nanosecond)
		n.tell("")
		g.Expect(clock.HasWaiters()).To(BeFalse())
		n.end()
		g.Expect(st.said()).To(BeEmpty())
	})

	t.Run("a longer one is noted once, and again when it is for something else", func(t *testing.T) {
		g, n, st, clock := begin(t, "")
		n.tell("full")
		clock.Step(noteAfter / 2)
		n.tell("full")
		clock.Step(noteAfter / 2)
		g.Expect(st.said()).To(Equal([]string{"full"}))
		n.tell("full")
		clock.Step(time.Hour)
		g.Expect(st.said()).To(Equal([]string{"full"}))
		n.tell("starting")
		n.tell("not scheduled")
		clock.Step(noteAfter)
		g.Expect(st.said()).To(Equal([]string{"full", "not scheduled"}))
		n.tell("")
		g.Eventually(st.said, time.Minute).Should(Equal([]string{"full", "not scheduled", ""}))
		n.tell("what the handler waits for")
		clock.Step(time.Hour)
		n.end()
		g.Expect(st.said()).To(HaveLen(3))
	})

	t.Run("one that an earlier attempt has noted is not noted again, and ends with the begin of the handler", func(t *testing.T) {
		g, n, st, clock := begin(t, "full")
		n.tell("full")
		clock.Step(time.Hour)
		g.Expect(st.said()).To(BeEmpty())
		n.tell("")
		g.Eventually(st.said, time.Minute).Should(Equal([]string{""}))
	})

	t.Run("nothing is noted after the attempt", func(t *testing.T) {
		g, n, st, clock := begin(t, "")
		n.tell("full")
		n.end()
		n.tell("other")
		clock.Step(time.Hour)
		g.Expect(st.said()).To(BeEmpty())
	})

	t.Run("a write that fails is left to the end of the attempt", func(t *testing.T) {
		g, n, st, clock := begin(t, "")
		st.err = store.ErrUnavailable
		n.tell("full")
		clock.Step(noteAfter)
		clock.Step(time.Hour)
		g.Expect(st.said()).To(Equal([]string{"full"}))
	})
}
