package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// journal is the log of a thread, and the tails that read it.
type journal struct {
	tails *Tails

	mu       sync.Mutex
	events   []store.Event
	reads    int
	failing  error
	notified []func(store.Notification)
}

func newJournal() *journal {
	j := &journal{}
	j.tails = NewTails(TailOptions{Subscribe: j.subscribe, Read: j.read, Recheck: time.Hour})
	return j
}

func (j *journal) subscribe(_ string, fn func(store.Notification)) (stop func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notified = append(j.notified, fn)
	return func() {}
}

func (j *journal) read(_ context.Context, _ string, after int64, limit int) (out []store.Event, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reads++
	for _, e := range j.events {
		if e.Seq > after && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, j.failing
}

// happens appends an event and notifies.
func (j *journal) happens(kind string, data string) {
	j.mu.Lock()
	j.events = append(j.events, store.Event{Seq: int64(len(j.events) + 1), Type: kind, Data: []byte(data)})
	notified := j.notified
	j.mu.Unlock()
	for _, fn := range notified {
		fn(store.Notification{})
	}
}

func (j *journal) readCount() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reads
}

// follow follows from a position until there are n events, and returns them. own counts reads of the store.
func (j *journal) follow(ctx context.Context, f *Followed, from int64, n int, own *int) (seqs []int64, err error) {
	for {
		events, held, err := f.After(from)
		if err != nil {
			return seqs, err
		}
		if !held {
			*own++
			events, _ = j.read(ctx, "t", from, TailPage)
		}
		for _, e := range events {
			seqs, from = append(seqs, e.Seq), e.Seq
		}
		if len(seqs) >= n {
			return seqs, nil
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-f.Ready():
		case <-ctx.Done():
			return seqs, ctx.Err()
		}
	}
}

func upTo(from, to int64) (all []int64) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

var _ = Describe("Tails of logs", Label("EVT-01"), func() {
	It("give each event once and in order to a thousand followers, and read it once", func(ctx SpecContext) {
		j := newJournal()
		const followers, events = 1000, 300
		var all sync.WaitGroup
		errs := make([]error, followers)
		for i := range followers {
			f := j.tails.Follow(ctx, "t", 0)
			all.Go(func() {
				defer f.Close()
				own := 0
				seqs, err := j.follow(ctx, f, 0, events, &own)
				if err == nil && fmt.Sprint(seqs) != fmt.Sprint(upTo(1, events)) {
					err = fmt.Errorf("got %v", seqs)
				}
				errs[i] = err
			})
		}
		for range events {
			j.happens("tick", "1")
		}
		all.Wait()
		Expect(errors.Join(errs...)).NotTo(HaveOccurred())
		Expect(j.readCount()).To(BeNumerically("<", 100*events), "the thread is read by one for all; only those who fall behind read for themselves")
		Expect(j.tails.CountFollowed()).To(BeZero())
	}, SpecTimeout(2*time.Minute))

	It("read once for all who are not behind", func(ctx SpecContext) {
		j := newJournal()
		var all []*Followed
		for range 20 {
			all = append(all, j.tails.Follow(ctx, "t", 0))
		}
		Eventually(j.readCount).Should(Equal(1), "the first read, in which there is nothing")
		j.happens("tick", "1")
		own := 0
		for _, f := range all {
			Expect(j.follow(ctx, f, 0, 1, &own)).To(Equal([]int64{1}))
		}
		Expect(own).To(BeZero())
		Expect(j.readCount()).To(Equal(2))
		for _, f := range all {
			f.Close()
			f.Close()
		}
		Expect(j.tails.CountFollowed()).To(BeZero())
	}, SpecTimeout(2*time.Minute))

	It("send those who are behind to the store", func(ctx SpecContext) {
		j := newJournal()
		for range 10 {
			j.happens("tick", "1")
		}
		f := j.tails.Follow(ctx, "t", 10)
		defer f.Close()
		own := 0
		Expect(j.follow(ctx, f, 0, 10, &own)).To(Equal(upTo(1, 10)))
		Expect(own).To(Equal(1))
		for range tailEvents + 10 {
			j.happens("tick", "1")
		}
		Expect(j.follow(ctx, f, 10, tailEvents+10, ptr.To(0))).To(Equal(upTo(11, tailEvents+20)))
		_, held, err := f.After(10)
		Expect(held, err).To(BeFalse(), "no more than %d are held", tailEvents)
	}, SpecTimeout(2*time.Minute))

	It("forget contents that were removed", func(ctx SpecContext) {
		for _, kind := range []string{store.EventMessageDeleted, store.EventTruncated, store.EventDestroyed, store.EventRunRolledBack} {
			j := newJournal()
			f := j.tails.Follow(ctx, "t", 0)
			j.happens(store.EventMessageCreated, "content")
			Expect(j.follow(ctx, f, 0, 1, ptr.To(0))).To(HaveLen(1))
			j.happens(kind, "1")
			Expect(j.follow(ctx, f, 1, 1, ptr.To(0))).To(Equal([]int64{2}))
			_, held, err := f.After(0)
			Expect(held, err).To(BeFalse(), kind)
			f.Close()
		}
	}, SpecTimeout(2*time.Minute))

	It("find events whose notification was lost, and then hold nothing that is old", func(ctx SpecContext) {
		j := newJournal()
		j.tails.Recheck = 20 * time.Millisecond
		j.tails.Subscribe = func(string, func(store.Notification)) (stop func()) { return func() {} }
		f := j.tails.Follow(ctx, "t", 0)
		defer f.Close()
		Eventually(j.readCount).Should(BeNumerically(">=", 1))
		j.happens("tick", "1")
		Expect(j.follow(ctx, f, 0, 1, ptr.To(0))).To(Equal([]int64{1}))
		Eventually(func() bool { _, held, _ := f.After(0); return held }).Should(BeFalse())
	}, SpecTimeout(2*time.Minute))

	It("end with the error of the store, and begin anew for the next", func(ctx SpecContext) {
		j := newJournal()
		f := j.tails.Follow(ctx, "t", 0)
		j.mu.Lock()
		j.failing = store.ErrNotFound
		j.mu.Unlock()
		j.happens("tick", "1")
		_, err := j.follow(ctx, f, 0, 1, ptr.To(0))
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(j.tails.CountFollowed()).To(BeZero())
		j.mu.Lock()
		j.failing = nil
		j.mu.Unlock()
		again := j.tails.Follow(ctx, "t", 0)
		defer again.Close()
		f.Close()
		Expect(j.tails.CountFollowed()).To(Equal(1), "who leaves a thread that has failed does not end the new one")
		Expect(j.follow(ctx, again, 0, 1, ptr.To(0))).To(Equal([]int64{1}))
	}, SpecTimeout(2*time.Minute))

	It("draw what they hold, and return it", func(ctx SpecContext) {
		j := newJournal()
		budget := membudget.New(64<<20, time.Second)
		work, done := budget.Begin(ctx, "ns")
		f := j.tails.Follow(work, "t", 0)
		done() // the request of the first follower may end before the others
		for range 20 {
			j.happens("tick", string(make([]byte, 100_000)))
		}
		Expect(j.follow(ctx, f, 0, 20, ptr.To(0))).To(HaveLen(20))
		Eventually(budget.Used).Should(And(BeNumerically(">", 900_000), BeNumerically("<", 1_200_000)))
		f.Close()
		Eventually(budget.Used).Should(BeZero())
	}, SpecTimeout(2*time.Minute))
})
