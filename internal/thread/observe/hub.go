package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/store"
)

// Interval is the shortest time between two patches of a thread.
const Interval = 100 * time.Millisecond

// maxWaiting and maxWaitingBytes bound the patches that wait for one watcher. Watchers share the bytes.
const (
	maxWaiting      = 64
	maxWaitingBytes = 8 << 20
)

// readBytes is what is drawn before a thread is read. What was read is drawn once its size is known.
const readBytes = 1 << 20

// Errors that end a watch.
var (
	// ErrTooSlow means that a watcher has fallen behind. It can watch again, and begins with the present value.
	ErrTooSlow = errors.New("the watcher reads changes too slowly")
	errClosed  = errors.New("the watch has ended")
)

// Reader reads parts of a thread. before is the last value that was read, or nil. It may return before when nothing
// has changed since. It returns store.ErrNotFound when the thread does not exist.
type Reader func(ctx context.Context, threadID string, parts []string, before *Value) (*Value, error)

// Options are the options of a Hub. Recheck is how often a watched thread is read without a notification, because
// notifications may be lost.
type Options struct {
	Subscribe func(threadID string, fn func(store.Notification)) (stop func())
	Read      Reader
	Recheck   time.Duration
	Clock     clock.Clock // the real clock when nil
}

// Hub gives out watches. It is safe for concurrent use.
type Hub struct {
	Options

	mu      sync.Mutex
	threads map[string]*observed // those with a watcher
}

// NewHub returns a Hub.
func NewHub(o Options) *Hub {
	if o.Clock == nil {
		o.Clock = ownclock.Clock{}
	}
	return &Hub{Options: o, threads: map[string]*observed{}}
}

// Watch begins to watch some parts of a thread. What is read and held of the thread is drawn from a part of the account of ctx, that of
// the first watcher. A watch that finds no memory ends. The caller must call Close.
func (h *Hub) Watch(ctx context.Context, threadID string, parts []string) *Watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.threads[threadID]
	if !ok {
		account := membudget.From(ctx).Open()
		ctx, cancel := context.WithCancel(membudget.With(context.Background(), account))
		o = &observed{hub: h, id: threadID, stop: cancel, account: account, wake: make(chan struct{}, 1), watches: map[*Watch]bool{}}
		h.threads[threadID] = o
		go o.run(ctx)
	}
	w := &Watch{observed: o, parts: parts, ready: make(chan struct{}, 1)}
	o.join(w)
	return w
}

// CountWatched returns the number of threads that are watched.
func (h *Hub) CountWatched() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.threads)
}

// forget removes a thread. The next watch begins anew.
func (h *Hub) forget(o *observed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.threads[o.id] == o {
		delete(h.threads, o.id)
	}
}

// leave ends a watch, and with the last one the reading of its thread.
func (h *Hub) leave(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := w.observed
	if o.leave(w) {
		o.stop()
		o.account.Close()
		if h.threads[o.id] == o {
			delete(h.threads, o.id)
		}
	}
}
