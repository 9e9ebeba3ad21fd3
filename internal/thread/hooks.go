package thread

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// MessageHooks are called when somebody writes messages of a thread (HOK-01). What the methods give is applied
// in the transaction of the write itself. Their error is that ctx ended: whatever else goes wrong in a hook leaves
// the data as it is.
type MessageHooks interface {
	// Creating may change a message that is about to be stored.
	Creating(ctx context.Context, m *store.Message) ([]store.Op, error)
	// Updating may change what is about to be changed of a message.
	Updating(ctx context.Context, id string, u *MessageUpdate) ([]store.Op, error)
	// Queueing is told of a message that is about to wait in the inbox. It becomes one of the conversation, and is
	// shown to Creating's kind of hooks, when a run takes it.
	Queueing(ctx context.Context, m *store.Message)
}

// WithHooks gives the same thread, whose messages are written through hooks; nil for none.
func (st *State) WithHooks(h MessageHooks) *State {
	bound := *st
	bound.hooks = h
	return &bound
}

// CheckMessage refuses a message that has more bytes than a message may have.
func (s *Service) CheckMessage(m *store.Message) error { return s.checkSize("message", m) }

// creating asks the hooks about a new message.
func (st *State) creating(ctx context.Context, m *store.Message) ([]store.Op, error) {
	if st.hooks == nil {
		return nil, nil
	}
	return st.hooks.Creating(ctx, m)
}

// updating asks the hooks about a change of a message.
func (st *State) updating(ctx context.Context, id string, u *MessageUpdate) ([]store.Op, error) {
	if st.hooks == nil {
		return nil, nil
	}
	return st.hooks.Updating(ctx, id, u)
}
