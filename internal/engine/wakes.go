package engine

import (
	"context"
	"sync"
	"time"
)

// wakeBatch is how many runs one look for those whose time has come takes.
const wakeBatch = 1000

// wakes takes up parked runs whose time has come. The times are in the store; here is only when to look next. Each
// replica waits for the times that it parked runs with, and finds those of a lost one at the beat of the sweeps.
type wakes struct {
	engine *Engine
	poke   chan struct{}

	mu   sync.Mutex
	next int64 // when to look, in microseconds
}

func newWakes(e *Engine) *wakes { return &wakes{engine: e, poke: make(chan struct{}, 1)} }

// expect has the worker look at a time, if it would not before; 0 is never.
func (w *wakes) expect(at int64) {
	if at == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at < w.next {
		w.next = at
		signal(w.poke)
	}
}

func (w *wakes) loop(ctx context.Context) {
	clock := w.engine.opts.Clock
	for ctx.Err() == nil {
		// What is parked from here on is told by expect, what was before is found by the look.
		w.mu.Lock()
		w.next = w.engine.now() + w.engine.opts.SweepInterval.Microseconds()
		w.mu.Unlock()
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			w.engine.log.Error(err, "cannot look for runs whose time has come")
		}
		for again := false; !again && ctx.Err() == nil; {
			w.mu.Lock()
			wait := time.Duration(w.next-w.engine.now()) * time.Microsecond
			w.mu.Unlock()
			timer := clock.NewTimer(max(wait, 0))
			select {
			case <-ctx.Done():
			case <-w.poke: // the time may be an earlier one
			case <-timer.C():
				again = true
			}
			timer.Stop()
		}
	}
}

// look queues the threads whose time has come, and finds when the next one's does.
func (w *wakes) look(ctx context.Context) error {
	for offset := 0; ; offset += wakeBatch {
		page, err := w.engine.store.Wakes(ctx, wakeBatch, offset)
		if err != nil {
			return err
		}
		for _, wake := range page {
			if wake.At > w.engine.now() {
				w.expect(wake.At)
				return nil
			}
			w.engine.queue.Add(wake.ThreadID)
		}
		if len(page) < wakeBatch {
			return nil
		}
	}
}
