package effects

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

// noteAfter is how long an attempt waits before its firing says for what. A shorter wait costs no write.
const noteAfter = 2 * time.Second

// waits records what an attempt waits for before its handler begins. The attempt itself goes on, and keeps its place among all that wait.
type waits struct {
	worker *Worker
	ctx    context.Context
	firing *store.Firing

	writing sync.Mutex // held during a write, so that the writes are in order

	mu    sync.Mutex  // guards what follows
	timer clock.Timer // nil when nothing is to be written later
	why   string      // what the attempt waits for; "" when it does not
	noted string      // what the firing says
	begun bool        // the handler has its sandbox: what it waits for itself is its own matter
	over  bool        // the attempt has ended, and its end says what the firing waits for
}

func (w *Worker) newWaits(ctx context.Context, f *store.Firing) *waits {
	return &waits{worker: w, ctx: ctx, firing: f, noted: f.Waiting}
}

// tell says what the attempt waits for. With "" the handler begins. It returns at once.
func (n *waits) tell(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begun || n.over {
		return
	}
	n.why, n.begun = why, why == ""
	switch {
	case n.begun:
		n.stop()
		if n.noted != "" {
			go n.write()
		}
	case n.timer == nil && why != n.noted:
		n.timer = n.worker.opts.Clock.AfterFunc(noteAfter, n.write)
	}
}

// stop stops the timer. The caller holds mu.
func (n *waits) stop() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// end is for after the attempt. When it returns nothing more is written.
func (n *waits) end() {
	n.mu.Lock()
	n.over = true
	n.stop()
	n.mu.Unlock()
	n.writing.Lock() // a write may be under way
	defer n.writing.Unlock()
}

// write makes the firing say what the attempt waits for.
func (n *waits) write() {
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	why, same := n.why, n.why == n.noted || n.over
	n.timer, n.noted = nil, n.why
	n.mu.Unlock()
	if same {
		return
	}
	f := n.firing
	err := n.worker.store.WaitFiring(n.ctx, store.FiringClaim{Key: f.Key(), Epoch: f.Epoch}, f.Namespace, why)
	if err != nil && n.ctx.Err() == nil && !errors.Is(err, store.ErrFiringLost) { // the end of the attempt says it, too
		n.worker.log.Info("a firing does not say yet what it waits for", "scheduledEffect", f.Name, "namespace", f.Namespace, "error", err.Error())
	}
}
