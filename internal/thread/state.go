package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// State is one thread. Within a run it is bound to the run's fence (WithFence): every write of it then
// fails with store.ErrFenced once the thread has passed to another holder. Safe for concurrent use.
type State struct {
	svc   *Service
	id    string
	fence *store.Fence
}

// WithFence gives the same thread, bound to a run's fence.
func (st *State) WithFence(f *store.Fence) *State {
	return &State{svc: st.svc, id: st.id, fence: f}
}

// ID of the thread, a UUID.
func (st *State) ID() string { return st.id }

// Info gives the thread's row. store.ErrNotFound once it was purged.
func (st *State) Info(ctx context.Context) (*store.Thread, error) {
	return st.svc.store.Thread(ctx, st.id)
}

// Apply commits operations of the store on this thread, under the fence when there is one.
func (st *State) Apply(ctx context.Context, ops ...store.Op) error {
	return st.svc.store.Apply(ctx, st.id, st.fence, ops...)
}
