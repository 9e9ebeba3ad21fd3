package observe

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// LifecyclePage is the most lifecycle events that are read at once, and that LifecycleWatch.Next returns.
	LifecyclePage = 200
	// lifecycleEvents bounds the events that are held.
	lifecycleEvents = 2 * LifecyclePage
	// lookAgain is how soon the feed is read again for entries that were not final. lookAnyway is after how long it is
	// read without a notification, because notifications may be lost.
	lookAgain  = 20 * time.Millisecond
	lookAnyway = 10 * time.Second
)

// LifecycleOptions are the options of a Lifecycle. Read reads the feed of the store.
type LifecycleOptions struct {
	Subscribe func(fn func(store.Notification)) (stop func())
	Read      func(ctx context.Context, q store.LifecycleQuery) (*store.LifecyclePage, error)
	Clock     clock.Clock // the real clock when nil
}

// Lifecycle tells watchers what happens to threads and sessions (STA-06). One goroutine reads the newest events for all
// watchers, of whatever namespaces, and none while there are none. A watcher that is further behind reads the store itself.
// Lifecycle is safe for concurrent use.
type Lifecycle struct {
	LifecycleOptions

	mu      sync.Mutex
	watches map[*LifecycleWatch]bool
	stop    func() // ends the goroutine; nil when there is none
	// events are all those with begin < Cursor <= end, once known is set.
	known      bool
	begin, end store.LifecycleCursor
	events     []store.LifecycleEvent
}

// NewLifecycle returns a Lifecycle.
func NewLifecycle(o LifecycleOptions) *Lifecycle {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	return &Lifecycle{LifecycleOptions: o, watches: map[*LifecycleWatch]bool{}}
}

// LifecycleWatch is one watcher of a Lifecycle. One goroutine calls Next.
type LifecycleWatch struct {
	feed  *Lifecycle
	ready chan struct{}
	query store.LifecycleQuery // After is what it has; guarded by feed.mu
	err   error                // guarded by feed.mu
}

// Watch begins to watch what a query selects. The caller must call Close.
func (f *Lifecycle) Watch(q store.LifecycleQuery) *LifecycleWatch {
	q.Limit = LifecyclePage
	w := &LifecycleWatch{feed: f, ready: make(chan struct{}, 1), query: q}
	w.wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[w] = true
	if f.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		changed := make(chan struct{}, 1)
		unsubscribe := f.Subscribe(func(n store.Notification) {
			if n.Changed&store.ChangedThread != 0 {
				signal(changed)
			}
		})
		f.stop = func() { unsubscribe(); cancel() }
		go f.run(ctx, changed)
	}
	return w
}

// Ready has a value when Next may return something.
func (w *LifecycleWatch) Ready() <-chan struct{} { return w.ready }

// Next returns the events that come next, the oldest first, and none when there are no others yet. An error ends the watch.
func (w *LifecycleWatch) Next(ctx context.Context) ([]store.LifecycleEvent, error) {
	for {
		events, held, err := w.heldEvents()
		if held || err != nil {
			return events, err
		}
		q := w.nextQuery()
		page, err := w.feed.Read(ctx, q)
		if err != nil {
			return nil, err
		}
		w.move(page.Next)
		if len(page.Events) > 0 || page.Next == q.After {
			return page.Events, nil
		}
	}
}

// heldEvents returns what comes next of the events that are held. ok is false when earlier ones may be missing.
func (w *LifecycleWatch) heldEvents() (events []store.LifecycleEvent, ok bool, err error) {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.err != nil {
		return nil, false, w.err
	}
	if !f.known || before(w.query.After, f.begin) {
		return nil, false, nil
	}
	first := sort.Search(len(f.events), func(i int) bool { return before(w.query.After, f.events[i].Cursor) })
	for i := first; i < len(f.events) && len(events) < LifecyclePage; i++ {
		w.query.After = f.events[i].Cursor
		if w.query.Selects(&f.events[i]) {
			events = append(events, f.events[i])
		}
	}
	return events, true, nil
}

// nextQuery returns the query for what comes next.
func (w *LifecycleWatch) nextQuery() store.LifecycleQuery {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	return w.query
}

// move says that the watcher has what comes before a cursor, and the entry there.
func (w *LifecycleWatch) move(to store.LifecycleCursor) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	w.reach(to)
}

// reach is move for a caller that holds the lock.
func (w *LifecycleWatch) reach(to store.LifecycleCursor) {
	if before(w.query.After, to) {
		w.query.After = to
	}
}

// Close ends the watch, and with the last one the reading. It may be called again.
func (w *LifecycleWatch) Close() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watches[w] {
		return
	}
	delete(f.watches, w)
	if len(f.watches) == 0 {
		f.rest()
	}
}

// run reads the feed after notifications, and from time to time.
func (f *Lifecycle) run(ctx context.Context, changed <-chan struct{}) {
	if err := f.start(ctx); err != nil {
		f.fail(ctx, err)
		return
	}
	for {
		inFlight, err := f.readAll(ctx)
		if err != nil {
			f.fail(ctx, err)
			return
		}
		wait := lookAnyway
		if inFlight {
			wait = lookAgain
		}
		timer := f.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
			if !inFlight {
				f.release(ctx)
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// start finds the end of the feed. What comes after it is held.
func (f *Lifecycle) start(ctx context.Context) error {
	page, err := f.Read(ctx, store.LifecycleQuery{Latest: true})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	f.known, f.begin, f.end = true, page.Next, page.Next
	for w := range f.watches {
		if before(w.query.After, f.begin) { // it may have read before the entries up to here were there
			w.wake()
		}
	}
	return nil
}

// readAll reads the entries that have come. inFlight reports that there are others which cannot be read yet.
func (f *Lifecycle) readAll(ctx context.Context) (inFlight bool, err error) {
	q := store.LifecycleQuery{Limit: LifecyclePage}
	for {
		f.mu.Lock()
		q.After = f.end
		f.mu.Unlock()
		page, err := f.Read(ctx, q)
		if err != nil {
			return false, err
		}
		f.add(ctx, page)
		if len(page.Events) < LifecyclePage {
			return page.InFlight, nil
		}
	}
}

// add holds what was read, and wakes those watchers that get something of it.
func (f *Lifecycle) add(ctx context.Context, page *store.LifecyclePage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // what is held may be that of the next goroutine
	}
	last := f.end
	f.events = append(f.events, page.Events...)
	f.end = page.Next
	if n := len(f.events) - lifecycleEvents; n > 0 {
		f.begin = f.events[n-1].Cursor
		f.events = slices.Delete(f.events, 0, n)
	}
	for w := range f.watches {
		switch {
		case slices.ContainsFunc(page.Events, func(e store.LifecycleEvent) bool { return w.query.Selects(&e) }):
			w.wake()
		case !before(w.query.After, last): // it has all before these, and they are not for it
			w.reach(f.end)
		}
	}
}

// release drops the events that are held. Watchers that have not taken them by now read the store.
func (f *Lifecycle) release(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.begin, f.events = f.end, nil
	}
}

// fail ends all watches. The next one begins anew.
func (f *Lifecycle) fail(ctx context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for w := range f.watches {
		w.err = err
		w.wake()
	}
	clear(f.watches)
	f.rest()
}

// rest ends the goroutine. The caller holds mu.
func (f *Lifecycle) rest() {
	f.stop()
	f.stop, f.known, f.events = nil, false, nil
}

func (w *LifecycleWatch) wake() { signal(w.ready) }

// signal makes a receive from a channel of one value succeed, now or later.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// before reports whether a place of the feed comes before another one.
func before(a, b store.LifecycleCursor) bool {
	return cmp.Or(cmp.Compare(a.Tick, b.Tick), cmp.Compare(a.Seq, b.Seq)) < 0
}
