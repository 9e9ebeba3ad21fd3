package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// happenings is a lifecycle feed of the store, and the Lifecycle that reads it.
type happenings struct {
	feed  *Lifecycle
	clock *clocktesting.FakeClock

	mu       sync.Mutex
	events   []store.LifecycleEvent
	reads    int
	inFlight int // how many of the newest events are not final
	failing  error
	notify   map[int]func(store.Notification)
	subs     int
}

func newHappenings() *happenings {
	h := &happenings{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), notify: map[int]func(store.Notification){}}
	h.feed = NewLifecycle(LifecycleOptions{Subscribe: h.subscribe, Read: h.read, Clock: h.clock})
	return h
}

func (h *happenings) subscribe(fn func(store.Notification)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs++
	n := h.subs
	h.notify[n] = fn
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.notify, n)
	}
}

func (h *happenings) read(_ context.Context, q store.LifecycleQuery) (*store.LifecyclePage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	final := h.events[:len(h.events)-h.inFlight]
	page := &store.LifecyclePage{Next: q.After, InFlight: h.inFlight > 0}
	for _, e := range final {
		switch {
		case q.Latest:
			page.Next = e.Cursor
		case before(q.After, e.Cursor) && len(page.Events) < q.Limit:
			page.Next = e.Cursor
			if q.Selects(&e) {
				page.Events = append(page.Events, e)
			}
		}
	}
	return page, h.failing
}

// happens appends events of a namespace, and notifies once for each.
func (h *happenings) happens(namespace string, n int) {
	for range n {
		h.mu.Lock()
		h.events = append(h.events, store.LifecycleEvent{Cursor: store.LifecycleCursor{Seq: int64(len(h.events) + 1)}, Namespace: namespace})
		h.mu.Unlock()
		h.told()
	}
}

func (h *happenings) told() {
	h.mu.Lock()
	var all []func(store.Notification)
	for _, fn := range h.notify {
		all = append(all, fn)
	}
	h.mu.Unlock()
	for _, fn := range all {
		fn(store.Notification{ThreadID: "t", Changed: store.ChangedThread})
	}
}

func (h *happenings) counts() (reads, subscribers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads, len(h.notify)
}

func (h *happenings) readCount() int {
	reads, _ := h.counts()
	return reads
}

// waits waits until the goroutine has read all, and waits for more.
func (h *happenings) waits() {
	GinkgoHelper()
	Eventually(h.clock.HasWaiters).Should(BeTrue())
}

// follow returns what a watch gets until there are n events.
func follow(ctx context.Context, w *LifecycleWatch, n int) (seqs []int64, err error) {
	for len(seqs) < n {
		events, err := w.Next(ctx)
		if err != nil {
			return seqs, err
		}
		for _, e := range events {
			seqs = append(seqs, e.Cursor.Seq)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-w.Ready():
		case <-ctx.Done():
			return seqs, ctx.Err()
		}
	}
	return seqs, nil
}

var _ = Describe("what happens to threads", Label("STA-06", "EVT-02"), func() {
	at := func(namespace string, seq int64) store.LifecycleQuery {
		return store.LifecycleQuery{Namespace: namespace, After: store.LifecycleCursor{Seq: seq}}
	}

	It("is read once for a thousand watchers, who are one subscriber of the store", func(ctx SpecContext) {
		h := newHappenings()
		h.happens("ns", 3)
		const watchers = 1000
		var all []*LifecycleWatch
		for range watchers {
			w := h.feed.Watch(at("ns", 3))
			defer w.Close()
			all = append(all, w)
		}
		h.waits()
		for _, w := range all { // none has anything yet
			Expect(w.Next(ctx)).To(BeEmpty())
		}
		reads, subscribers := h.counts()
		Expect(subscribers).To(Equal(1))
		h.happens("ns", 1)
		for _, w := range all {
			Expect(follow(ctx, w, 1)).To(Equal([]int64{4}))
		}
		Expect(h.readCount()).To(Equal(reads + 1))
		for _, w := range all {
			w.Close()
			w.Close()
		}
		_, subscribers = h.counts()
		Expect(subscribers).To(BeZero(), "there are no watchers")
	}, SpecTimeout(2*time.Minute))

	It("wakes only the watchers of its namespace, and those are not behind afterwards", func(ctx SpecContext) {
		h := newHappenings()
		mine, all := h.feed.Watch(at("mine", 0)), h.feed.Watch(at("", 0))
		defer mine.Close()
		defer all.Close()
		h.waits()
		Eventually(mine.Ready()).Should(Receive())
		Expect(mine.Next(ctx)).To(BeEmpty())
		for i := range lifecycleEvents + 10 { // more than are held
			h.happens("other", 1)
			Expect(follow(ctx, all, 1)).To(Equal([]int64{int64(i + 1)}))
		}
		h.waits()
		Expect(mine.Ready()).NotTo(Receive())
		reads := h.readCount()
		h.happens("mine", 1)
		Expect(follow(ctx, mine, 1)).To(Equal([]int64{lifecycleEvents + 11}))
		Expect(h.readCount()).To(Equal(reads+1), "the reader for all; the watcher reads nothing itself")
	}, SpecTimeout(2*time.Minute))

	It("is told once and in order, also to those who are behind, while more happens", func(ctx SpecContext) {
		h := newHappenings()
		h.happens("ns", 2*LifecyclePage+10)
		const more = 300
		var done sync.WaitGroup
		errs := make([]error, 20)
		for i := range errs {
			w := h.feed.Watch(at("ns", int64(i)))
			done.Go(func() {
				defer w.Close()
				want := upTo(int64(i)+1, 2*LifecyclePage+10+more)
				got, err := follow(ctx, w, len(want))
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("got %v", got)
				}
				errs[i] = err
			})
		}
		h.happens("ns", more)
		done.Wait()
		Expect(errors.Join(errs...)).NotTo(HaveOccurred())
	}, SpecTimeout(2*time.Minute))

	It("is found when it is final, and when its notification was lost", func(ctx SpecContext) {
		h := newHappenings()
		w := h.feed.Watch(at("ns", 0))
		defer w.Close()
		h.waits()
		h.mu.Lock()
		h.inFlight = 1
		h.mu.Unlock()
		h.happens("ns", 1)
		Expect(w.Next(ctx)).To(BeEmpty())
		h.mu.Lock()
		h.inFlight = 0
		h.mu.Unlock()
		step := func() bool { h.clock.Step(lookAnyway); e, err := w.Next(ctx); return err == nil && len(e) == 1 }
		Eventually(step).Should(BeTrue())

		h.mu.Lock()
		h.events = append(h.events, store.LifecycleEvent{Cursor: store.LifecycleCursor{Seq: 2}, Namespace: "ns"})
		h.mu.Unlock()
		Eventually(step).Should(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("ends with the error of the store, and begins anew for the next", func(ctx SpecContext) {
		h := newHappenings()
		w := h.feed.Watch(at("ns", 0))
		h.waits()
		h.mu.Lock()
		h.failing = store.ErrUnavailable
		h.mu.Unlock()
		h.happens("ns", 1)
		_, err := follow(ctx, w, 1)
		Expect(err).To(MatchError(store.ErrUnavailable))
		h.mu.Lock()
		h.failing = nil
		h.mu.Unlock()
		again := h.feed.Watch(at("ns", 0))
		defer again.Close()
		w.Close()
		Expect(follow(ctx, again, 1)).To(Equal([]int64{1}))
		h.happens("ns", 1)
		Expect(follow(ctx, again, 1)).To(Equal([]int64{2}), "who leaves after a failure does not end the new reading")
	}, SpecTimeout(2*time.Minute))
})
