package observe

import (
	"bytes"
	"context"
	"fmt"
	"sync"
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
	waiting []Update
	bytes   int
	err     error
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
	u = w.waiting[0]
	w.waiting[0] = Update{}
	w.waiting = w.waiting[1:]
	w.bytes -= len(u.JSON)
	return u, true, nil
}

// Close ends the watch. It may be called again.
func (w *Watch) Close() {
	w.end(errClosed)
	w.observed.hub.leave(w)
}

// add queues an update. A watcher that has fallen too far behind loses all that waits for it, and the watch ends.
func (w *Watch) add(u Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(w.waiting) > 0 && (len(w.waiting) >= maxWaiting || w.bytes+len(u.JSON) > maxWaitingBytes) {
		w.waiting, w.bytes, w.err = nil, 0, ErrTooSlow
	} else {
		w.waiting, w.bytes = append(w.waiting, u), w.bytes+len(u.JSON)
	}
	w.wake()
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
