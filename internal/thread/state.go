package thread

import (
	"context"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// State is one thread. Within a run it is bound to the run's fence (WithFence): all its writes fail with
// store.ErrFenced once the thread has another holder. It is safe for concurrent use.
type State struct {
	svc    *Service
	id     string
	fence  *store.Fence
	guard  *guard
	hooks  MessageHooks
	reader func(context.Context) EnvReader // see WithReader
	active bool                            // see WhileActive
}

// WithFence returns the same thread, bound to the fence of a run or of a Writer.
func (st *State) WithFence(f *store.Fence) *State {
	bound := *st
	bound.fence = f
	return &bound
}

// WhileActive returns the same thread for writes that a terminated thread refuses: they fail with store.ErrTerminated
// when the thread was terminated before their commit.
func (st *State) WhileActive() *State {
	bound := *st
	bound.active = true
	return &bound
}

// WithReader returns the same thread as a reader sees it: its variables include those of the prompts that the reader
// uses. reader is called for each call, with its context, because the turn passes from side to side. Without it, side a
// reads.
func (st *State) WithReader(reader func(context.Context) EnvReader) *State {
	bound := *st
	bound.reader = reader
	return &bound
}

// ID returns the id of the thread, a UUID.
func (st *State) ID() string { return st.id }

// Info returns the thread's record, or store.ErrNotFound once it was purged.
func (st *State) Info(ctx context.Context) (*store.Thread, error) {
	return st.svc.store.Thread(ctx, st.id)
}

// Apply commits operations on this thread, under the fence if there is one.
func (st *State) Apply(ctx context.Context, ops ...store.Op) error {
	if st.guard != nil {
		return st.guard.apply(ctx, st, ops)
	}
	return st.svc.store.Apply(ctx, st.id, st.fence, st.conditions(ops)...)
}

// conditions adds the ops that check what must hold at the commit.
func (st *State) conditions(ops []store.Op) []store.Op {
	if !st.active || len(ops) == 0 {
		return ops
	}
	if once, ok := ops[0].(*store.Once); ok { // Once stays first, so that a repeat is answered whatever the thread's state is
		return slices.Concat([]store.Op{once, &store.ExpectActive{}}, ops[1:])
	}
	return slices.Concat([]store.Op{&store.ExpectActive{}}, ops)
}
