package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/membudget"
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

// largeTitle is the size of the title of a thread whose id begins with large.
const largeTitle = 300 << 10

// read reads two large threads at a time, or any number of others.
func (l *listed) read(_ context.Context, ids []string) (rows []store.Thread, read int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads = append(l.reads, ids)
	for i, id := range ids {
		t := store.Thread{ID: id, Namespace: "ns"}
		if strings.HasPrefix(id, "large") {
			if len(rows) == 2 {
				return rows, i, l.fails
			}
			t.Title = strings.Repeat("x", largeTitle)
		}
		if strings.HasPrefix(id, "other") {
			t.Namespace = "other"
		}
		if id != "gone" {
			rows = append(rows, t)
		}
	}
	return rows, len(ids), l.fails
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

// failed returns why the watch has ended, or nil.
func (w *FeedWatch) failed() error {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	return w.err
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
		w, twin := l.feed.Watch(context.Background(), ""), l.feed.Watch(context.Background(), "")
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
		w := l.feed.Watch(context.Background(), "")
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

	It("forgets a notification that comes while its last watch is closed", func() {
		l := newListed()
		w := l.feed.Watch(context.Background(), "")
		late := l.notify
		w.Close()
		late(store.Notification{ThreadID: "a", Changed: store.ChangedThread})
		w = l.feed.Watch(context.Background(), "")
		defer w.Close()
		l.change("a")
		Expect(l.batch(w)).To(Equal([]string{"a"}))
	})

	It("tells of a thread that was left waiting by a failure of the store", func() {
		l := newListed()
		w := l.feed.Watch(context.Background(), "")
		l.change("first")
		l.batch(w)
		for i := range 2*BatchSize + 1 {
			l.change(fmt.Sprint(i))
		}
		fail := func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.fails = err
		}
		fail(errors.New("the disk is full"))
		for range 2 {
			Eventually(l.clock.HasWaiters).Should(BeTrue())
			before := l.count()
			l.clock.Step(Interval)
			Eventually(l.count).Should(Equal(before + 1))
		}
		Eventually(w.failed).Should(HaveOccurred())
		fail(nil)
		next := l.feed.Watch(context.Background(), "")
		defer next.Close()
		w.Close()
		l.change(fmt.Sprint(2 * BatchSize))
		Eventually(l.clock.HasWaiters).Should(BeTrue())
		l.clock.Step(Interval)
		Expect(l.batch(next)).To(Equal([]string{fmt.Sprint(2 * BatchSize)}))
	})

	It("reads on where it has ended early, and tells of one namespace what is its own", Label("K8S-12"), func() {
		l := newListed()
		w, other := l.feed.Watch(context.Background(), ""), l.feed.Watch(context.Background(), "other")
		defer w.Close()
		defer other.Close()
		l.change("first")
		l.batch(w)
		l.change("large-1", "large-2", "large-3", "other", "large-4", "large-5")
		for _, want := range [][]string{{"large-1", "large-2"}, {"large-3", "other"}, {"large-4", "large-5"}} {
			Eventually(l.clock.HasWaiters).Should(BeTrue())
			l.clock.Step(Interval)
			Expect(l.batch(w)).To(Equal(want))
		}
		Expect(l.batch(other)).To(Equal([]string{"other"}))
		_, ok, err := other.Take()
		Expect(ok).To(BeFalse())
		Expect(err).NotTo(HaveOccurred())
	})

	It("draws what waits for a watcher, which ends when there is no memory or too much waits", Label("K8S-12"), func() {
		l := newListed()
		budget := membudget.New(4<<20, time.Millisecond)
		work, done := budget.Begin(context.Background(), "ns")
		defer done()
		w, poor, calm := l.feed.Watch(context.Background(), ""), l.feed.Watch(work, "ns"), l.feed.Watch(work, "other")
		defer w.Close()
		// tell changes a thread and waits until w was told.
		tell := func(i int) {
			GinkgoHelper()
			l.change(fmt.Sprint("large-", i))
			Eventually(func() (ok bool, err error) {
				l.clock.Step(Interval)
				_, ok, err = w.Take()
				return ok, err
			}).Should(BeTrue())
		}
		var used int64
		for i := 0; poor.failed() == nil; i++ {
			Expect(i).To(BeNumerically("<", 10), "there is memory for a few batches")
			tell(i)
			l.feed.mu.Lock() // all have been told
			now := budget.Used()
			l.feed.mu.Unlock()
			if now != 0 {
				Expect(now).To(BeNumerically(">", used+largeTitle))
			}
			used = now
		}
		Expect(used).To(BeZero(), "what waited is dropped")
		_, ok, err := poor.Take()
		Expect(ok).To(BeFalse())
		Expect(membudget.Refused(err)).To(BeTrue(), "%v", err)
		Expect(calm.failed()).NotTo(HaveOccurred(), "another namespace's changes do not wait for it")
		poor.Close()
		calm.Close()

		last := l.feed.Watch(work, "ns")
		tell(0)
		Eventually(budget.Used).Should(BeNumerically(">", largeTitle))
		l.batch(last)
		Expect(budget.Used()).To(BeZero(), "it was taken")
		last.Close()

		slow := l.feed.Watch(context.Background(), "")
		defer slow.Close()
		for i := 0; slow.failed() == nil; i++ {
			Expect(i).To(BeNumerically("<", maxWaiting), "their bytes are too many before their number is")
			tell(i)
		}
		Expect(slow.failed()).To(MatchError(ErrTooSlow))
	})

	It("says that everything may have changed, and when a watcher is too slow or the store fails", func() {
		l := newListed()
		w, slow := l.feed.Watch(context.Background(), ""), l.feed.Watch(context.Background(), "")
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
