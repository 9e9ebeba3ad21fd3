package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// madeKey is the prefix of the keys of items that came without one, and of no others. A repeat cannot have such a key,
// so the key need not be stored.
const madeKey = "skein:seq:"

func (t *tx) enqueue(from *head, op *store.Enqueue) error {
	h, err := t.receiver(from, op)
	if h == nil || err != nil {
		return err
	}
	given := op.Item.Key != "" && !strings.HasPrefix(op.Item.Key, madeKey)
	if given {
		if op.Existed, err = t.exists(qInboxKey, []any{h.key, op.Item.Key}, &op.Seq); op.Existed || err != nil {
			return err
		}
	}
	if err := t.checkBusy(h, op); err != nil {
		return err
	}
	limited := op.MaxUserMessages > 0 && op.Item.Kind == store.InboxMessage
	if limited {
		var n int
		if err := t.row(t.ctx, qLimitedCount, []any{h.key}, &n); err != nil {
			return err
		}
		if n >= op.MaxUserMessages {
			return fmt.Errorf("thread %s: %w", h.id, store.ErrQueueFull)
		}
	}
	if op.Item.CreatedAt == 0 {
		op.Item.CreatedAt = t.now
	}
	if op.Item.Kind == store.InboxMessage {
		id, role := payloadOf(op.Item.Payload)
		op.Seq, err = t.log(h, store.Event{Type: store.EventMessageQueued, MessageID: id})
		if err != nil {
			return err
		}
		if role == store.RoleUser {
			h.userAt = max(h.userAt, op.Item.CreatedAt)
		}
		h.queued++
	} else {
		op.Seq = h.next()
	}
	op.Item.Seq = op.Seq
	if given {
		if err := t.write(t.ctx, qUseInboxKey, h.key, op.Item.Key, op.Seq); err != nil {
			return err
		}
	} else {
		op.Item.Key = fmt.Sprint(madeKey, op.Seq)
	}
	if err := t.write(t.ctx, qInsertInbox, h.key, op.Seq, op.Item.Key, string(op.Item.Kind), limited,
		nullJSON(op.Item.Payload), op.Item.CreatedAt); err != nil {
		return err
	}
	h.waiting++
	h.touch(store.ChangedInbox)
	if op.Item.Kind == store.InboxStop {
		h.touch(store.ChangedStop)
	}
	if op.Unpark {
		return t.wake(h, asleepParked)
	}
	return nil
}

// checkBusy refuses an item that asks for an idle thread when the thread is busy.
func (t *tx) checkBusy(h *head, op *store.Enqueue) error {
	if !op.IfNoRun && !op.IfIdle {
		return nil
	}
	under, err := t.underWay(h)
	if err != nil {
		return err
	}
	if under || op.IfIdle && h.queued > 0 && h.life.asleep == 0 {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrRunning)
	}
	return nil
}

// underWay reports whether a run of the thread is in progress or parked.
func (t *tx) underWay(h *head) (bool, error) {
	var one int
	return found(t.row(t.ctx, qUnderWay, []any{h.key}, &one))
}

// receiver returns the thread that an item goes to; nil when the item is to be dropped.
func (t *tx) receiver(from *head, op *store.Enqueue) (*head, error) {
	h := from
	if op.To != "" && op.To != from.id {
		var err error
		h, err = t.head(op.To)
		if errors.Is(err, store.ErrNotFound) && op.IgnoreTerminated { // a purged thread counts as terminated
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if retained := h.life.asleep&asleepRetained != 0; h.terminatedAt == 0 && !retained {
		return h, nil
	} else if op.IgnoreTerminated {
		return nil, nil
	} else if retained {
		return nil, fmt.Errorf("thread %s: %w", h.id, store.ErrRetained)
	}
	return nil, fmt.Errorf("thread %s: %w", h.id, store.ErrTerminated)
}

func (t *tx) dequeue(h *head, op *store.Dequeue) error {
	for _, seq := range op.Seqs {
		var kind store.InboxKind
		var heldUntil int64
		err := t.row(t.ctx, qDeleteInbox, []any{h.key, seq}, &kind, &heldUntil)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if heldUntil == 0 {
			h.waiting--
		}
		if kind == store.InboxMessage {
			h.queued--
		}
		h.taken = true
		h.touch(0)
	}
	return nil
}

// holdItem keeps an item from counting as work until it becomes due again.
func (t *tx) holdItem(h *head, op *store.Hold) error {
	n, err := t.exec(t.ctx, qHoldInbox, op.Until, op.Tries, h.key, op.Seq)
	if err != nil {
		return err
	}
	if n == 0 {
		return t.write(t.ctx, qHoldLonger, op.Until, op.Tries, h.key, op.Seq)
	}
	h.waiting -= n
	h.taken = true
	h.touch(0)
	return nil
}

// Inbox implements store.Store.
func (s *Store) Inbox(ctx context.Context, threadID string) ([]store.InboxItem, error) {
	var items []store.InboxItem
	err := s.readers.snapshot(ctx, func(c *conn) (err error) {
		var key int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		items, err = list(ctx, c, scanInbox, qInbox, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox of thread %s: %w", threadID, err)
	}
	return items, nil
}
