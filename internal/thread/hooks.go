package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// MessageHooks are called when messages of a thread are written (HOK-01). The ops that they return are applied in the
// transaction of the write. They return an error only when ctx ended: any other failure of a hook leaves the data as it
// is.
type MessageHooks interface {
	// Creating may change a message before it is stored.
	Creating(ctx context.Context, m *store.Message) ([]store.Op, error)
	// Updating may change an update before it is applied.
	Updating(ctx context.Context, id string, u *MessageUpdate) ([]store.Op, error)
	// Queueing is called for a message that is about to wait in the inbox. The message joins the conversation, and
	// passes the hooks for created messages, when a run takes it.
	Queueing(ctx context.Context, m *store.Message)
}

// WithHooks returns the same thread, with its messages written through hooks; nil for none.
func (st *State) WithHooks(h MessageHooks) *State {
	bound := *st
	bound.hooks = h
	return &bound
}

// CheckMessage refuses a message that exceeds the size limit.
func (s *Service) CheckMessage(m *store.Message) error { return s.checkSize("message", m) }

// callCreateHooks calls the hooks for a new message.
func (st *State) callCreateHooks(ctx context.Context, m *store.Message) ([]store.Op, error) {
	if st.hooks == nil {
		return nil, nil
	}
	return st.hooks.Creating(ctx, m)
}

// callUpdateHooks calls the hooks for an update of a message.
func (st *State) callUpdateHooks(ctx context.Context, id string, u *MessageUpdate) ([]store.Op, error) {
	if st.hooks == nil {
		return nil, nil
	}
	return st.hooks.Updating(ctx, id, u)
}
