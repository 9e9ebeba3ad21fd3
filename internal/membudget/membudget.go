// Package membudget is the accountant of the manager's memory. What namespaces make the manager hold, such as decoded values,
// pages, batches of events, request bodies and conversations, is drawn from one Budget before it is allocated, and
// returned when it is let go. So no namespace can use up the memory of the others or end the process.
//
// The rule: a namespace may hold as much as is still free. One namespace alone can take half of the budget, n of them
// an equal part each, and as much again stays free for the next one that comes.
package membudget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Patience is how long a draw waits for others to return memory, unless the budget has another patience. It is bounded, because
// one that waits may hold memory for which another one waits.
const Patience = 10 * time.Second

// BusyError means that a namespace has to wait for memory longer than it may. It can try again later.
type BusyError struct {
	Namespace string
	Bytes     int64 // what was asked for
	InUse     int64 // what the namespace held
}

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("the namespace %q already takes %s of the manager's memory, and there was no room for %s more: do less at once, or try again later",
		e.Namespace, binarySize(e.InUse), binarySize(e.Bytes))
}

// TooLargeError means that one draw is more than a namespace can ever hold. To try again is of no use.
type TooLargeError struct {
	Bytes, Most int64
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("this takes %s of the manager's memory, more than the %s that a namespace can have: send or ask for less at once", binarySize(e.Bytes), binarySize(e.Most))
}

// Refused reports whether an error means that there is no memory for something.
func Refused(err error) bool {
	var busy *BusyError
	var large *TooLargeError
	return errors.As(err, &busy) || errors.As(err, &large)
}

// binarySize returns n bytes as text: in MiB or, below one MiB, in KiB, rounded up.
func binarySize(n int64) string {
	if n > 0 && n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

// Budget is a number of bytes that namespaces share. It is safe for concurrent use. A nil Budget has no limit.
type Budget struct {
	total    int64
	patience time.Duration

	mu      sync.Mutex
	used    int64
	held    map[string]int64     // of namespaces that hold some
	queues  map[string][]*waiter // of namespaces that wait, in the order in which the draws came
	reclaim []func(bytes int64)
}

// waiter is a draw that waits. The lock of the Budget guards granted.
type waiter struct {
	namespace string
	bytes     int64
	granted   bool
	ready     chan struct{} // closed when it is granted
}

// New returns a budget. A total of 0 or less is without limit. Draws wait as long as patience says, and Patience if it is 0.
func New(total int64, patience time.Duration) *Budget {
	if total <= 0 {
		return nil
	}
	return &Budget{total: total, patience: cmp.Or(patience, Patience), held: map[string]int64{}, queues: map[string][]*waiter{}}
}

// Total returns the size of the budget, and 0 if it has no limit.
func (b *Budget) Total() int64 {
	if b == nil {
		return 0
	}
	return b.total
}

// Used returns how many bytes are drawn.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// OnShortage has f called when a draw finds no room, and before it waits. f may return what is only kept in case it is
// needed again.
func (b *Budget) OnShortage(f func(bytes int64)) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reclaim = append(b.reclaim, f)
}

// most is the largest draw that can ever be granted.
func (b *Budget) most() int64 { return b.total / 2 }

// fits reports whether a namespace may draw n bytes now. Afterwards it must hold no more than is still free. wanted says that a
// namespace which holds less waits too: then this one must also hold no more than an equal share. The caller holds mu.
func (b *Budget) fits(namespace string, n int64, wanted bool) bool {
	held := b.held[namespace] + n
	return held <= b.total-b.used-n && (!wanted || held <= b.share())
}

// share is an equal share of the budget, among all namespaces that hold or want some and one more. The caller holds mu.
func (b *Budget) share() int64 {
	n := len(b.held)
	for namespace := range b.queues {
		if _, holds := b.held[namespace]; !holds {
			n++
		}
	}
	return b.total / int64(n+1)
}

// grant draws without asking. The caller holds mu.
func (b *Budget) grant(namespace string, n int64) {
	b.used += n
	b.held[namespace] += n
}

func (b *Budget) draw(ctx context.Context, namespace string, n int64, wait bool) error {
	if n > b.most() {
		return &TooLargeError{Bytes: n, Most: b.most()}
	}
	w := b.enqueue(namespace, n)
	if w == nil {
		return nil
	}
	b.mu.Lock()
	reclaim := b.reclaim
	busy := &BusyError{Namespace: namespace, Bytes: n, InUse: b.held[namespace]}
	b.mu.Unlock()
	for _, f := range reclaim {
		f(n)
	}
	if !wait {
		return b.leave(w, busy)
	}
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return b.leave(w, context.Cause(ctx))
	case <-timer.C:
		return b.leave(w, busy)
	}
}

// enqueue draws n bytes at once, or returns a waiter for them.
func (b *Budget) enqueue(namespace string, n int64) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queues) == 0 && b.fits(namespace, n, false) {
		b.grant(namespace, n)
		return nil
	}
	w := &waiter{namespace: namespace, bytes: n, ready: make(chan struct{})}
	b.queues[namespace] = append(b.queues[namespace], w)
	b.wake()
	if w.granted {
		return nil
	}
	return w
}

// leave ends the wait of w. It returns err, unless w was granted in the meantime.
func (b *Budget) leave(w *waiter, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.granted {
		return nil
	}
	b.remove(w)
	b.wake() // others may have waited behind it
	return err
}

// remove takes w out of its queue. The caller holds mu.
func (b *Budget) remove(w *waiter) {
	q := slices.DeleteFunc(b.queues[w.namespace], func(o *waiter) bool { return o == w })
	if b.queues[w.namespace] = q; len(q) == 0 {
		delete(b.queues, w.namespace)
	}
}

func (b *Budget) put(namespace string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.held[namespace] -= n; b.held[namespace] == 0 {
		delete(b.held, namespace)
	}
	b.wake()
}

// wake grants what fits: first to the namespace that holds least, and within a namespace to the one that came first. The caller holds
// mu.
func (b *Budget) wake() {
	for {
		next := b.next()
		if next == nil {
			return
		}
		b.grant(next.namespace, next.bytes)
		next.granted = true
		close(next.ready)
		b.remove(next)
	}
}

// next returns the waiter to be granted next, or nil while there is no room for any. The caller holds mu.
func (b *Budget) next() *waiter {
	namespaces := slices.SortedFunc(maps.Keys(b.queues), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.held[x], b.held[y]), cmp.Compare(x, y))
	})
	for i, namespace := range namespaces {
		if w := b.queues[namespace][0]; b.fits(namespace, w.bytes, i > 0) {
			return w
		}
	}
	return nil
}

// Waiting returns how many draws wait.
func (b *Budget) Waiting() int {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, q := range b.queues {
		n += len(q)
	}
	return n
}
