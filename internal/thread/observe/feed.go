package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// BatchSize is the largest number of threads that a Feed reads and sends at once.
	BatchSize = 50
	// maxChanged bounds the threads that wait to be read. Beyond it, watchers are told to list again.
	maxChanged = 10_000
)

// Batch is what a Feed sends: the threads that have changed, as they are now. With Reset anything may have changed, so
// that a watcher has to list again.
type Batch struct {
	Threads []store.Thread
	Reset   bool
}

// FeedOptions are the options of a Feed. Read returns the threads that exist of those with these ids.
type FeedOptions struct {
	Subscribe func(fn func(store.Notification)) (stop func())
	Read      func(ctx context.Context, ids []string) ([]store.Thread, error)
	Clock     clock.Clock // the real clock when nil
}

// Feed tells watchers of lists which threads have changed: at most every 100 ms, in small batches (EVT-04). One goroutine
// reads for all watchers, and none while there are none. It is safe for concurrent use.
type Feed struct {
	FeedOptions

	mu      sync.Mutex
	wake    chan struct{}   // of the present goroutine
	changed map[string]bool // threads to read
	order   []string        // the same, the longest waiting first
	reset   bool
	watches map[*FeedWatch]bool
	stop    func() // ends the goroutine; nil when there is none
}

// NewFeed returns a Feed.
func NewFeed(o FeedOptions) *Feed {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	return &Feed{FeedOptions: o, changed: map[string]bool{}, watches: map[*FeedWatch]bool{}}
}

// FeedWatch is one watcher of a Feed.
type FeedWatch struct {
	feed    *Feed
	ready   chan struct{}
	waiting []Batch // guarded by feed.mu
	err     error   // guarded by feed.mu
}

// Watch begins to watch. What changes from now on is told. The caller must call Close.
func (f *Feed) Watch() *FeedWatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &FeedWatch{feed: f, ready: make(chan struct{}, 1)}
	f.watches[w] = true
	if f.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		unsubscribe := f.Subscribe(f.notified)
		f.stop = func() { unsubscribe(); cancel() }
		f.wake = make(chan struct{}, 1)
		go f.run(ctx, f.wake)
	}
	return w
}

// Ready has a value when Take may return something.
func (w *FeedWatch) Ready() <-chan struct{} { return w.ready }

// Take returns the batch that comes next. ok is false when nothing waits.
func (w *FeedWatch) Take() (b Batch, ok bool, err error) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	if len(w.waiting) == 0 {
		return Batch{}, false, w.err
	}
	b, w.waiting = w.waiting[0], w.waiting[1:]
	return b, true, nil
}

// Close ends the watch. It may be called again.
func (w *FeedWatch) Close() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, w)
	if len(f.watches) == 0 && f.stop != nil {
		f.stop()
		f.stop, f.reset, f.order = nil, false, nil
		clear(f.changed)
	}
}

// notified handles a notification. The store calls it after a commit, so it must not block.
func (f *Feed) notified(n store.Notification) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n.Everything(), len(f.changed) >= maxChanged:
		f.reset, f.order = true, nil
		clear(f.changed)
	case n.ThreadID != "" && !f.changed[n.ThreadID]:
		f.changed[n.ThreadID] = true
		f.order = append(f.order, n.ThreadID)
	default:
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Feed) run(ctx context.Context, wake chan struct{}) {
	last := f.Clock.Now().Add(-Interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		if rest := Interval - f.Clock.Since(last); rest > 0 && !sleep(ctx, f.Clock, rest) {
			return
		}
		more, err := f.flush(ctx)
		if ctx.Err() != nil {
			return
		}
		last = f.Clock.Now()
		if err != nil {
			f.end(err)
		}
		if more {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
}

// flush reads and tells one batch. more reports that others wait.
func (f *Feed) flush(ctx context.Context) (more bool, err error) {
	ids, reset := f.take(ctx)
	b := Batch{Reset: reset}
	if len(ids) > 0 {
		if b.Threads, err = f.Read(ctx, ids); err != nil {
			return false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if reset || len(b.Threads) > 0 {
		for w := range f.watches {
			w.add(b)
		}
	}
	return len(f.order) > 0, nil
}

// take takes what waits, unless the last watcher has gone: then it may be for the goroutine of the next one.
func (f *Feed) take(ctx context.Context) (ids []string, reset bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return nil, false
	}
	n := min(len(f.order), BatchSize)
	ids = slices.Clone(f.order[:n])
	f.order = f.order[n:]
	for _, id := range ids {
		delete(f.changed, id)
	}
	reset, f.reset = f.reset, false
	return ids, reset
}

// end ends all watches.
func (f *Feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watches {
		w.err = err
		w.wake()
	}
}

// add queues a batch. A watcher that has fallen too far behind loses what waits for it, and the watch ends.
func (w *FeedWatch) add(b Batch) {
	switch {
	case w.err != nil:
		return
	case len(w.waiting) >= maxWaiting:
		w.waiting, w.err = nil, ErrTooSlow
	default:
		w.waiting = append(w.waiting, b)
	}
	w.wake()
}

func (w *FeedWatch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
