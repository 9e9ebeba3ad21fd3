package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// Queue puts a message into the inbox, durably and in order (MSG-05). A running thread takes it before its next model
// step, an idle one starts. It fails with store.ErrTerminated or store.ErrQueueFull.
func (st *State) Queue(ctx context.Context, n NewMessage) (*store.Message, error) {
	q, err := st.PrepareQueue(ctx, n)
	if err != nil {
		return nil, err
	}
	return q.Done(ctx, st.Apply(ctx, q.Op))
}

// QueuedMessage is a message that is ready for the inbox. Its user commits Op, and then calls Done.
type QueuedMessage struct {
	Op *store.Enqueue

	state   *State
	message *store.Message
}

// PrepareQueue returns a message that Queue would put into the inbox, for those who commit it together with more, or under a condition.
func (st *State) PrepareQueue(ctx context.Context, n NewMessage) (*QueuedMessage, error) {
	m, err := st.prepare(ctx, n, queuedPrefix)
	if err != nil {
		return nil, err
	}
	if st.hooks != nil {
		st.hooks.Queueing(ctx, m)
	}
	limit := max(st.svc.limits.queued, 0)
	if n.FromSystem || m.Role != store.RoleUser { // MSG-07
		limit = 0
	}
	op, err := enqueueOp(m, queueKey(n), limit)
	if err != nil {
		return nil, err
	}
	op.Unpark, op.Bounded = n.Unpark || !n.FromSystem, !n.FromSystem
	op.Origin = telemetry.OriginOf(ctx).Encode() // set here, because a message that replaces a run is committed by that run, in another context
	return &QueuedMessage{Op: op, state: st, message: m}, nil
}

// Done returns the message as it was stored, or what err, the error of its commit, means to the sender.
func (q *QueuedMessage) Done(ctx context.Context, err error) (*store.Message, error) {
	switch {
	case err == nil:
	case errors.Is(err, store.ErrInboxFull):
		return nil, err
	case errors.Is(err, store.ErrQueueFull):
		return nil, fmt.Errorf("%w: %d wait already; wait for the thread to take them, then send again", err, q.Op.MaxUserMessages)
	case errors.Is(err, store.ErrTerminated):
		return nil, fmt.Errorf("%w: start a new thread to go on", err)
	default:
		return nil, err
	}
	if q.Op.Existed { // a repeat with an idempotency key puts nothing into the inbox
		return q.state.first(ctx, q.message)
	}
	stored := *q.message // secrets may have been removed from the one in Op
	if err := json.Unmarshal(q.Op.Item.Payload, &stored); err != nil {
		return nil, fmt.Errorf("inbox item of thread %s is not a message: %w", q.state.id, err)
	}
	stored.MarkQueued()
	return &stored, nil
}

// QueuedMessages returns a page of the waiting messages, in order.
func (st *State) QueuedMessages(ctx context.Context, q store.MessageQuery) (*store.MessagePage, error) {
	q.QueuedOnly, q.Order, q.IncludeSilent, q.AllDepths = true, "asc", true, true
	return st.svc.store.Messages(ctx, st.id, q)
}

// queueKey returns the inbox key that makes a message with the same idempotency key, or the same id, be queued once.
func queueKey(n NewMessage) string {
	switch {
	case n.IdempotencyKey != "":
		return "key:" + n.IdempotencyKey
	case n.ID != "":
		return "id:" + n.ID
	}
	return ""
}

func enqueueOp(m *store.Message, key string, limit int) (*store.Enqueue, error) {
	payload, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return &store.Enqueue{
		Item:            store.InboxItem{Key: key, Kind: store.InboxMessage, Payload: payload, CreatedAt: m.CreatedAt},
		MaxUserMessages: limit,
	}, nil
}
