// Package activethreads keeps the threads that this replica works for, in runs and beside them, so that their work can be cancelled.
package activethreads

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/store"
)

// Active is a thread that a worker of this replica has.
type Active struct {
	cancel context.CancelCauseFunc
	// cause is why the thread was cancelled; nil when it was not. Guarded by the lock of Threads.
	cause error
	// run is the id of the run that is under way; "" while it is not known. Guarded by the lock of Threads.
	run string
	// Done is closed when this replica has let go of the thread.
	Done chan struct{}
	// Dirty reports that the inbox may have changed since the holder last read it.
	Dirty atomic.Bool
	// onDirty is called when dirty is set; nil for nothing.
	onDirty atomic.Pointer[func()]
	// PassedOver is the sequence number of the newest inbox item that a run has processed before held hooks: 1 for a
	// run that was due by its time, 0 for none. Only the holder uses it.
	PassedOver int64
	// Ended are runs whose post-run tasks begin when this replica has released the lease. Only the holder uses it.
	Ended []store.RunRef
	// About are the keys and values of log lines about the thread, and about its run once that is known. Only the holder uses it.
	About []any
	// Namespace is that of the thread once it counts as running (K8S-11). Only the holder uses it.
	Namespace string
}

// NewActive returns a thread that cancel cancels.
func NewActive(cancel context.CancelCauseFunc) *Active {
	return &Active{cancel: cancel}
}

// Threads are the threads that this replica works for. It is safe for concurrent use.
type Threads struct {
	mu sync.Mutex
	// active has the threads that a worker of this replica has, by their ids. Guarded by mu.
	active map[string]*Active
	// background has the cancel functions of work for a thread outside of its runs, by the thread's id: calls of code through
	// the API, effects, and tasks that follow runs. Guarded by mu.
	background map[string]map[*context.CancelCauseFunc]struct{}
	// quiet is closed when there is no such work any more; nil while no goroutine waits for that. Guarded by mu.
	quiet chan struct{}
}

// New returns Threads without any.
func New() *Threads {
	return &Threads{active: map[string]*Active{}, background: map[string]map[*context.CancelCauseFunc]struct{}{}}
}

// MarkDirty records that the inbox of a thread may have changed, and reports whether the thread is active. When it is, the mark is set
// before Remove returns, so that the worker that removes the thread finds it.
func (t *Threads) MarkDirty(id string) (active bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.active[id]
	if a != nil {
		a.markDirty()
	}
	return a != nil
}

// Remove makes a thread inactive. It returns why the thread was cancelled; nil when it was not.
func (t *Threads) Remove(id string, a *Active) (cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, id)
	return a.cause
}

// IsEnding reports whether the thread is active and was cancelled.
func (t *Threads) IsEnding(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.active[id]
	return a != nil && a.cause != nil
}

// MarkAllDirty records for each active thread that its inbox may have changed.
func (t *Threads) MarkAllDirty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.active {
		a.markDirty()
	}
}

// IDs returns the threads that this replica works for, in a run or in the background.
func (t *Threads) IDs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]string, 0, len(t.active)+len(t.background))
	for id := range t.active {
		ids = append(ids, id)
	}
	for id := range t.background {
		if t.active[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Register makes a thread active. It returns false when the thread is active already.
func (t *Threads) Register(id string, a *Active) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[id] != nil {
		return false
	}
	a.Done = make(chan struct{})
	t.active[id] = a
	return true
}

// Attach returns a context that ends when the thread is terminated or purged, for background work beside the thread's
// runs. Call leave when the work is done.
func (t *Threads) Attach(ctx context.Context, id string) (attached context.Context, leave func()) {
	attached, end := context.WithCancelCause(ctx)
	return attached, t.attach(id, end, end)
}

// AttachUntilPurged is Attach for work that a terminated or destroyed thread still needs. The context ends when the Thread object
// is deleted.
func (t *Threads) AttachUntilPurged(ctx context.Context, id string) (attached context.Context, leave func()) {
	attached, end := context.WithCancelCause(ctx)
	return attached, t.attach(id, end, func(cause error) {
		if errors.Is(cause, cancelcause.ErrAborted) {
			end(cause)
		}
	})
}

// attach registers background work of a thread: Detach calls cancel for it. leave ends the context of the work with end and
// removes the registration.
func (t *Threads) attach(id string, end, cancel context.CancelCauseFunc) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.background[id] == nil {
		t.background[id] = map[*context.CancelCauseFunc]struct{}{}
	}
	t.background[id][&cancel] = struct{}{}
	return func() {
		end(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.background[id], &cancel); len(t.background[id]) == 0 {
			delete(t.background, id)
		}
		if len(t.background) == 0 && t.quiet != nil {
			close(t.quiet)
			t.quiet = nil
		}
	}
}

// BackgroundDone returns a channel that is closed when no work is under way outside of runs.
func (t *Threads) BackgroundDone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.background) == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if t.quiet == nil {
		t.quiet = make(chan struct{})
	}
	return t.quiet
}

// Detach cancels the background work of a thread.
func (t *Threads) Detach(id string, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cancel := range t.background[id] {
		(*cancel)(cause)
	}
}

// Cancel cancels the thread on this replica for a cause. It returns false when the thread is not active.
func (t *Threads) Cancel(id string, cause error) bool { return t.StartCancel(id, cause) != nil }

// StartCancel does the same as Cancel. It returns a channel that is closed when this replica no longer works for the thread, or nil if the
// thread is not active.
func (t *Threads) StartCancel(id string, cause error) (done <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.active[id]
	if a == nil {
		return nil
	}
	if s := cancelcause.StopOf(cause); s != nil && s.RunID != "" && a.run != "" && a.run != s.RunID {
		return nil
	}
	a.end(cause)
	return a.Done
}

// SetRun records which run of the thread is under way. A stop that names another run then leaves the thread alone.
func (t *Threads) SetRun(a *Active, runID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.run = runID
}

// IsActive reports whether the thread is active.
func (t *Threads) IsActive(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active[id] != nil
}

// CancelAll cancels all threads of this replica for a cause.
func (t *Threads) CancelAll(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.active {
		a.end(cause)
	}
}

// end cancels the thread. The first cause counts, but termination and purging replace a stop. The caller holds
// the lock of the Threads.
func (a *Active) end(cause error) {
	if a.cause == nil || cancelcause.StopOf(a.cause) != nil {
		a.cause = cause
	}
	a.cancel(cause)
}

// TakeEndedRuns returns the runs whose post-run tasks can begin, and forgets them. Their lease must be released or belong to the
// next run.
func (a *Active) TakeEndedRuns() []store.RunRef {
	ended := a.Ended
	a.Ended = nil
	return ended
}

// WhenDirty calls do when the thread's inbox may have changed, or already has, until over is called.
func (a *Active) WhenDirty(do func()) (over func()) {
	a.onDirty.Store(&do)
	if a.Dirty.Load() {
		do()
	}
	return func() { a.onDirty.Store(nil) }
}

// markDirty records that the inbox may have changed. The caller holds the lock of the Threads.
func (a *Active) markDirty() {
	a.Dirty.Store(true)
	if do := a.onDirty.Load(); do != nil {
		(*do)()
	}
}

// IsWorking reports whether this replica works for a thread, in a run or in the background.
func (t *Threads) IsWorking(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active[id] != nil || len(t.background[id]) > 0
}
