package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// listed is a feed over threads that always exist, except those whose id is gone.
type listed struct {
	feed   *Feed
	clock  *clocktesting.FakeClock
	notify func(store.Notification)

	mu    sync.Mutex
	reads [][]string
	fails error
}

func newListed() *listed {
	l := &listed{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	l.feed = NewFeed(FeedOptions{Clock: l.clock, Read: l.read, Subscribe: func(fn func(store.Notification)) func() {
		l.notify = fn
		return func() { l.notify = nil }
	}})
	return l
}

func (l *listed) read(_ context.Context, ids []string) (rows []store.Thread, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, ids)
	for _, id := range ids {
		if id != "gone" {
			rows = append(rows, store.Thread{ID: id})
		}
	}
	return rows, l.fails
}

func (l *listed) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.reads)
}

func (l *listed) change(ids ...string) {
	for _, id := range ids {
		l.notify(store.Notification{ThreadID: id, Changed: store.ChangedThread})
	}
}

// batch waits for the next batch and returns its ids.
func (l *listed) batch(w *FeedWatch) (ids []string) {
	GinkgoHelper()
	Eventually(w.Ready()).Should(Receive())
	b, ok, err := w.Take()
	Expect(err).NotTo(HaveOccurred())
	Expect(ok).To(BeTrue())
	for _, t := range b.Threads {
		ids = append(ids, t.ID)
	}
	return ids
}

var _ = Describe("the feed of a list", Label("EVT-04"), func() {
	It("tells changes at once, and then what has gathered, each thread once, at most every 100 ms", func() {
		l := newListed()
		w, twin := l.feed.Watch(), l.feed.Watch()
		l.change("a")
		Expect(l.batch(w)).To(Equal([]string{"a"}))
		l.change("b", "c", "b", "gone", "b")
		Eventually(l.clock.HasWaiters).Should(BeTrue())
		l.clock.Step(Interval - 1)
		Expect(l.count()).To(Equal(1), "100 ms have not passed")
		l.clock.Step(1)
		Expect(l.batch(w)).To(Equal([]string{"b", "c"}))
		Expect(l.count()).To(Equal(2), "of both watchers")
		w.Close()
		w.Close()
		Expect(l.batch(twin)).To(Equal([]string{"a"}))
		twin.Close()
		Expect(l.notify).To(BeNil(), "nobody watches")
	})

	It("tells many changes in small batches", func() {
		l := newListed()
		w := l.feed.Watch()
		defer w.Close()
		l.change("first")
		l.batch(w)
		for i := range 2*BatchSize + 1 {
			l.change(fmt.Sprint(i))
		}
		for _, n := range []int{BatchSize, BatchSize, 1} {
			Eventually(l.clock.HasWaiters).Should(BeTrue())
			l.clock.Step(Interval)
			Expect(l.batch(w)).To(HaveLen(n))
		}
	})

	It("says that everything may have changed, and when a watcher is too slow or the store fails", func() {
		l := newListed()
		w, slow := l.feed.Watch(), l.feed.Watch()
		defer w.Close()
		defer slow.Close()
		l.change("a")
		l.batch(w)
		l.notify(store.Notification{Changed: store.ChangedThread})
		Eventually(l.clock.HasWaiters).Should(BeTrue())
		l.clock.Step(Interval)
		Eventually(w.Ready()).Should(Receive())
		b, _, _ := w.Take()
		Expect(b.Reset).To(BeTrue())
		for i := range maxWaiting {
			l.change(fmt.Sprint(i))
			Eventually(l.clock.HasWaiters).Should(BeTrue())
			l.clock.Step(Interval)
			l.batch(w)
		}
		_, _, err := slow.Take()
		Expect(err).To(MatchError(ErrTooSlow))
		l.mu.Lock()
		l.fails = errors.New("the disk is full")
		l.mu.Unlock()
		l.change("b")
		Eventually(l.clock.HasWaiters).Should(BeTrue())
		l.clock.Step(Interval)
		Eventually(w.Ready()).Should(Receive())
		_, _, err = w.Take()
		Expect(err).To(MatchError("the disk is full"))
	})
})
