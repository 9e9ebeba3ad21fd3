package effects

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// slow is a Runner whose calls say for which namespace they began, and end when a test says so.
type slow struct {
	Runner
	began chan string
	end   chan struct{}
}

func (r *slow) CallTool(ctx context.Context, c Call) error {
	r.began <- c.Firing.Namespace
	select {
	case <-ctx.Done():
	case <-r.end:
	}
	return ctx.Err()
}

// TestFairness covers EFF-02: one namespace has ten thousand slow handlers due, and another has one.
func TestFairness(t *testing.T) {
	for _, c := range []struct{ workers, fill, ends int }{
		{4, 4, 1},  // the next slot that becomes free is the other's
		{10, 8, 0}, // with five slots and more, one waits for it
	} {
		t.Run(fmt.Sprint(c.workers, " slots"), func(t *testing.T) {
			g := NewWithT(t)
			st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir()})
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(func() { _ = st.Close() })
			target := toolTarget().Encode()
			many := store.DueRecord{Schedule: store.EffectSchedule{EffectID: "many"}}
			for due := range int64(10_000) {
				many.Firings = append(many.Firings, store.Firing{EffectID: "many", Due: due, Namespace: "many", Target: target})
			}
			g.Expect(st.RecordDue(t.Context(), many)).To(Succeed())

			r := &slow{began: make(chan string, 100), end: make(chan struct{})}
			w := NewWorker(Options{
				Store: st, Runner: r, Clock: clock.RealClock{}, Log: logr.Discard(), Owner: "a", Workers: c.workers, ClaimTTL: time.Hour,
				Retry: Retry{Attempts: 3, First: time.Second}, Fault: func(string) {},
			})
			ctx, stop := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); w.Run(ctx) }()
			t.Cleanup(func() { stop(); <-over })
			next := func() (namespace string) {
				t.Helper()
				g.Eventually(r.began, time.Minute).Should(Receive(&namespace))
				return namespace
			}
			for range c.fill {
				g.Expect(next()).To(Equal("many"))
			}
			g.Expect(st.RecordFiring(t.Context(), store.Firing{EffectID: "one", Due: 1, Namespace: "one", Target: target})).To(BeTrue())
			w.Wake()
			for range c.ends {
				r.end <- struct{}{}
			}
			g.Expect(next()).To(Equal("one"))
		})
	}
}
