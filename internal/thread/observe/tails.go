package observe

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// TailPage is the most events that are read at once, and that Followed.After returns.
	TailPage = 50
	// tailEvents and tailBytes bound the events that are held for one thread. The bytes are also drawn before a read.
	tailEvents = 256
	tailBytes  = 1 << 20
)

// TailOptions are the options of Tails. Read returns the events of a thread after a sequence number, the oldest first,
// and store.ErrNotFound when there is no such thread. Recheck is how often a log is read without a notification, because
// notifications may be lost.
type TailOptions struct {
	Subscribe func(threadID string, fn func(store.Notification)) (stop func())
	Read      func(ctx context.Context, threadID string, after int64, limit int) ([]store.Event, error)
	Recheck   time.Duration
	Clock     clock.Clock // the real clock when nil
}

// Tails holds the newest events of the threads whose logs are followed (EVT-01). One goroutine for each thread reads them
// for all followers. A follower that is further behind reads the store itself. Tails is safe for concurrent use.
type Tails struct {
	TailOptions

	mu      sync.Mutex
	threads map[string]*tail
}

// NewTails returns Tails.
func NewTails(o TailOptions) *Tails {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	return &Tails{TailOptions: o, threads: map[string]*tail{}}
}

// Follow begins to follow the log of a thread. end is the sequence number of an event that the log has had, or 0; events
// after it are held for the first follower. Memory is drawn from a part of the account of ctx. The caller must call Close.
func (ts *Tails) Follow(ctx context.Context, threadID string, end int64) *Followed {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t, ok := ts.threads[threadID]
	if !ok {
		account := membudget.From(ctx).Open()
		ctx, cancel := context.WithCancel(membudget.With(context.Background(), account))
		t = &tail{tails: ts, id: threadID, stop: cancel, account: account, wake: make(chan struct{}, 1), begin: end, end: end, followers: map[*Followed]bool{}}
		t.wakeReader()
		ts.threads[threadID] = t
		go t.run(ctx)
	}
	f := &Followed{tail: t, ready: make(chan struct{}, 1)}
	t.join(f)
	return f
}

// CountFollowed returns the number of threads whose logs are followed.
func (ts *Tails) CountFollowed() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.threads)
}

// forget removes a tail that has failed. The next follower begins anew.
func (ts *Tails) forget(t *tail) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.threads[t.id] == t {
		delete(ts.threads, t.id)
	}
}

// Followed is one follower of a log.
type Followed struct {
	tail  *tail
	ready chan struct{}
}

// Ready has a value when After may return something new.
func (f *Followed) Ready() <-chan struct{} { return f.ready }

// After returns events after a sequence number, the oldest first: TailPage at most, and none when there are no others yet.
// held is false when events after it may be missing here. Then the caller reads the store. Callers must not change the
// events. An error ends the following.
func (f *Followed) After(seq int64) (events []store.Event, held bool, err error) {
	return f.tail.after(seq)
}

// End returns the sequence number of the newest event that was read, or of the one that Follow was given. The store has all events
// up to it.
func (f *Followed) End() int64 {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	return f.tail.end
}

// Close ends the following, and with the last follower the reading of the thread. It may be called again.
func (f *Followed) Close() {
	t := f.tail
	t.tails.mu.Lock()
	defer t.tails.mu.Unlock()
	if !t.leave(f) {
		return
	}
	t.stop()
	t.account.Close()
	if t.tails.threads[t.id] == t {
		delete(t.tails.threads, t.id)
	}
}

// tail holds the newest events of one thread: all with begin < Seq <= end. Its goroutine alone reads them. mu guards what
// follows it; the lock of Tails is taken before it, never after.
type tail struct {
	tails   *Tails
	id      string
	stop    context.CancelFunc
	account *membudget.Account
	wake    chan struct{}

	mu         sync.Mutex
	begin, end int64
	events     []store.Event
	bytes      int64
	err        error
	followers  map[*Followed]bool
}

func (t *tail) join(f *Followed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[f] = true
	if t.err != nil {
		f.wake()
	}
}

// leave removes a follower and reports whether it was the last.
func (t *tail) leave(f *Followed) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.followers[f] {
		return false
	}
	delete(t.followers, f)
	return len(t.followers) == 0
}

// wakeReader has the reader look at the log again.
func (t *tail) wakeReader() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tail) after(seq int64) (events []store.Event, held bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return nil, true, t.err
	case seq < t.begin:
		return nil, false, nil
	}
	first := sort.Search(len(t.events), func(i int) bool { return t.events[i].Seq > seq })
	return t.events[first:min(first+TailPage, len(t.events))], true, nil
}

// run reads the log after notifications, and from time to time.
func (t *tail) run(ctx context.Context) {
	defer t.tails.Subscribe(t.id, func(store.Notification) { t.wakeReader() })()
	for {
		recheck := t.tails.Clock.NewTimer(t.tails.Recheck)
		select {
		case <-ctx.Done():
			recheck.Stop()
			return
		case <-t.wake:
		case <-recheck.C():
			t.release()
		}
		recheck.Stop()
		for more := true; more; {
			var err error
			if more, err = t.read(ctx); err != nil {
				if ctx.Err() == nil {
					t.fail(err)
				}
				return
			}
		}
	}
}

// read reads one page, and tells the followers when there is something new. more reports that there may be others.
func (t *tail) read(ctx context.Context) (more bool, err error) {
	adjust, err := membudget.Reserve(ctx, tailBytes)
	if err != nil {
		return false, err
	}
	page, err := t.tails.Read(ctx, t.id, t.end, TailPage) // only this goroutine changes the end
	if err != nil {
		adjust(0)
		return false, err
	}
	var size int64
	for i := range page {
		size += page[i].Bytes()
	}
	adjust(size)
	if len(page) == 0 {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(page, isRemoval) {
		t.drop(len(t.events))
	}
	// A new slice, because followers still use parts of the one before.
	t.events = append(slices.Clip(t.events), page...)
	t.bytes += size
	t.end = page[len(page)-1].Seq
	for t.bytes > tailBytes || len(t.events) > tailEvents {
		t.drop(1)
	}
	for f := range t.followers {
		f.wake()
	}
	return len(page) == TailPage, nil
}

// isRemoval reports whether an event says that contents of earlier ones are gone. The store no longer shows those, and the
// events of the same page do not have them.
func isRemoval(e store.Event) bool {
	switch e.Type {
	case store.EventMessageDeleted, store.EventTruncated, store.EventDestroyed, store.EventRunRolledBack:
		return true
	}
	return false
}

// drop removes the first n events. The caller holds mu.
func (t *tail) drop(n int) {
	if n == 0 {
		return
	}
	var size int64
	for i := range t.events[:n] {
		size += t.events[i].Bytes()
	}
	t.begin = t.events[n-1].Seq
	t.events = t.events[n:]
	t.bytes -= size
	t.account.Return(size)
}

// release drops all events. Followers that have not read them since the last recheck read the store.
func (t *tail) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(len(t.events))
	t.events = nil
}

// fail ends all followings.
func (t *tail) fail(err error) {
	t.tails.forget(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(len(t.events))
	t.err, t.events = err, nil
	for f := range t.followers {
		f.wake()
	}
}

func (f *Followed) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}
