package thread

import (
	"context"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// State is one thread. Within a run it is bound to the run's fence (WithFence): every write of it then
// fails with store.ErrFenced once the thread has passed to another holder. Safe for concurrent use.
type State struct {
	svc    *Service
	id     string
	fence  *store.Fence
	guard  *guard
	hooks  MessageHooks
	reader func(context.Context) EnvReader // see WithReader
	active bool                            // see WhileActive
}

// WithFence gives the same thread, bound to a fence: a run's, or that of a Writer.
func (st *State) WithFence(f *store.Fence) *State {
	bound := *st
	bound.fence = f
	return &bound
}

// WhileActive returns the same thread for writes that a terminated thread refuses: each of them fails with
// store.ErrTerminated when the thread was terminated before its commit.
func (st *State) WhileActive() *State {
	bound := *st
	bound.active = true
	return &bound
}

// WithReader gives the same thread as a reader sees it: variables come from the prompts that it uses. It is asked with each
// call, whose context it gets, since the turn passes from side to side. Without it that is side a.
func (st *State) WithReader(reader func(context.Context) EnvReader) *State {
	bound := *st
	bound.reader = reader
	return &bound
}

// ID of the thread, a UUID.
func (st *State) ID() string { return st.id }

// Info gives the thread's row. store.ErrNotFound once it was purged.
func (st *State) Info(ctx context.Context) (*store.Thread, error) {
	return st.svc.store.Thread(ctx, st.id)
}

// Apply commits operations of the store on this thread, under the fence when there is one.
func (st *State) Apply(ctx context.Context, ops ...store.Op) error {
	if st.guard != nil {
		return st.guard.apply(ctx, st, ops)
	}
	return st.svc.store.Apply(ctx, st.id, st.fence, st.conditions(ops)...)
}

// conditions puts what must hold at the commit before the operations.
func (st *State) conditions(ops []store.Op) []store.Op {
	if !st.active || len(ops) == 0 {
		return ops
	}
	if once, ok := ops[0].(*store.Once); ok { // it stays the first: a repeat is answered, whatever the thread is by now
		return slices.Concat([]store.Op{once, &store.ExpectActive{}}, ops[1:])
	}
	return slices.Concat([]store.Op{&store.ExpectActive{}}, ops)
}
