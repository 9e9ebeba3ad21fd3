package observe

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/skein-dev/skein/internal/membudget"
)

// Update is a value, or a patch of the last one. JSON has the members v, the version, and value or patch. Watchers share
// it, so it must not be changed.
type Update struct {
	Patch bool
	JSON  []byte
}

// Watch is one watcher's view of a thread. One goroutine calls Next.
type Watch struct {
	observed *observed
	parts    []string
	begun    bool // the value was given; guarded by observed.mu

	ready chan struct{}

	mu      sync.Mutex
	waiting []*shared
	bytes   int
	err     error
}

// shared is an update that waits for one or more watchers. Its size is drawn from the account of its thread once, however many watchers
// there are, and returned when no watcher waits for it any more.
type shared struct {
	Update
	account *membudget.Account

	mu      sync.Mutex
	waiters int
}

// use adds a watcher that the update waits for. The first one draws the size of the update.
func (s *shared) use() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters == 0 {
		if err := s.account.TryDraw(int64(len(s.JSON))); err != nil {
			return err
		}
	}
	s.waiters++
	return nil
}

// release removes a watcher that the update waits for. The last one returns what was drawn.
func (s *shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters--; s.waiters == 0 {
		s.account.Return(int64(len(s.JSON)))
	}
}

// Ready has a value when Next may return something.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Next waits for what comes next.
func (w *Watch) Next(ctx context.Context) (Update, error) {
	for {
		if u, ok, err := w.Take(); ok || err != nil {
			return u, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}

// Take returns what comes next. ok is false when nothing waits.
func (w *Watch) Take() (u Update, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return Update{}, false, w.err
	}
	next := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	w.bytes -= len(next.JSON)
	next.release()
	return next.Update, true, nil
}

// Close ends the watch. It may be called again.
func (w *Watch) Close() {
	w.end(errClosed)
	w.mu.Lock()
	w.dropWaiting()
	w.mu.Unlock()
	w.observed.hub.leave(w)
}

// add queues an update. A watcher that has fallen too far behind, or for which there is no memory, loses all that waits for it, and the
// watch ends.
func (w *Watch) add(u *shared) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.waiting) > 0 && (len(w.waiting) >= maxWaiting || w.bytes+len(u.JSON) > maxWaitingBytes) {
		w.err = ErrTooSlow
	} else {
		w.err = u.use()
	}
	if w.err != nil {
		w.dropWaiting()
	} else {
		w.waiting, w.bytes = append(w.waiting, u), w.bytes+len(u.JSON)
	}
	w.wake()
}

// waitingBytes returns how many bytes wait.
func (w *Watch) waitingBytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// dropWaiting drops the updates that wait, and releases their memory. The caller holds mu.
func (w *Watch) dropWaiting() {
	for _, u := range w.waiting {
		u.release()
	}
	w.waiting, w.bytes = nil, 0
}

// end ends the watch with an error, behind what still waits.
func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.wake()
	}
}

func (w *Watch) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// encodePatch returns the JSON of an update with a patch.
func encodePatch(version int64, ops [][]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"v":%d,"patch":[`, version)
	b.Write(bytes.Join(ops, []byte{','}))
	b.WriteString("]}")
	return b.Bytes()
}
