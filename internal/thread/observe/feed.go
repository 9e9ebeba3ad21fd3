package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/membudget"
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

// Bytes returns about how many bytes of memory the batch takes.
func (b Batch) Bytes() (n int64) {
	for i := range b.Threads {
		n += b.Threads[i].Bytes()
	}
	return n
}

// forNamespace returns what a batch has of a namespace, or all of it for "".
func (b Batch) forNamespace(namespace string) Batch {
	if namespace != "" {
		b.Threads = slices.DeleteFunc(slices.Clone(b.Threads), func(t store.Thread) bool { return t.Namespace != namespace })
	}
	return b
}

// FeedOptions are the options of a Feed. Read returns the threads that exist of those with these ids. It may stop early, behind the first,
// when they are large: read is how many of the ids it has come to.
type FeedOptions struct {
	Subscribe func(fn func(store.Notification)) (stop func())
	Read      func(ctx context.Context, ids []string) (threads []store.Thread, read int, err error)
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
	feed      *Feed
	namespace string // "" for all
	account   *membudget.Account
	ready     chan struct{}
	waiting   []Batch // guarded by feed.mu
	bytes     int64   // of waiting; guarded by feed.mu
	err       error   // guarded by feed.mu
}

// Watch begins to watch the threads of a namespace, or all for "". What changes from now on is told. What waits for the watcher is drawn
// from a part of the account of ctx, and a watch that finds no memory ends. The caller must call Close.
func (f *Feed) Watch(ctx context.Context, namespace string) *FeedWatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &FeedWatch{feed: f, namespace: namespace, account: membudget.From(ctx).Open(), ready: make(chan struct{}, 1)}
	f.watches[w] = true
	if f.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		unsubscribe := f.Subscribe(f.handleNotification)
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
	b = w.waiting[0]
	w.waiting[0] = Batch{}
	w.waiting = w.waiting[1:]
	w.giveBack(b.Bytes())
	return b, true, nil
}

// Close ends the watch. It may be called again.
func (w *FeedWatch) Close() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, w)
	w.account.Close()
	if len(f.watches) == 0 && f.stop != nil {
		f.stop()
		f.stop, f.reset, f.order = nil, false, nil
		clear(f.changed)
	}
}

// handleNotification handles a notification. The store calls it after a commit, so it must not block.
func (f *Feed) handleNotification(n store.Notification) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop == nil {
		return // it was under way when the last watch was closed
	}
	switch {
	case n.Everything(), len(f.changed) >= maxChanged:
		f.reset, f.order = true, nil
		clear(f.changed)
	case n.ThreadID == "":
		return
	case !f.changed[n.ThreadID]:
		f.changed[n.ThreadID] = true
		f.order = append(f.order, n.ThreadID)
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
	read := 0
	if len(ids) > 0 {
		if b.Threads, read, err = f.Read(ctx, ids); err != nil {
			return false, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.putBack(ids[read:])
	}
	for w := range f.watches {
		if part := b.forNamespace(w.namespace); reset || len(part.Threads) > 0 {
			w.add(part)
		}
	}
	return len(f.order) > 0, nil
}

// putBack lets threads be read first the next time. The caller holds mu.
func (f *Feed) putBack(ids []string) {
	var first []string
	for _, id := range ids {
		if !f.changed[id] { // it has not changed again meanwhile
			f.changed[id] = true
			first = append(first, id)
		}
	}
	f.order = append(first, f.order...)
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

// add queues a batch. A watcher that has fallen too far behind, or for which there is no memory, loses what waits for it, and the watch
// ends.
func (w *FeedWatch) add(b Batch) {
	switch {
	case w.err != nil:
		return
	case len(w.waiting) > 0 && (len(w.waiting) >= maxWaiting || w.bytes+b.Bytes() > maxWaitingBytes):
		w.err = ErrTooSlow
	default:
		w.err = w.account.TryDraw(b.Bytes())
	}
	if w.err != nil {
		w.waiting = nil
		w.giveBack(w.bytes)
	} else {
		w.waiting, w.bytes = append(w.waiting, b), w.bytes+b.Bytes()
	}
	w.wake()
}

// giveBack returns memory of batches that no longer wait to the account. The caller holds the lock of the feed.
func (w *FeedWatch) giveBack(bytes int64) {
	w.account.Return(bytes)
	w.bytes -= bytes
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
