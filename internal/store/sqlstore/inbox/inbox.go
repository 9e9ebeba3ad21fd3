// Package inbox holds the items that wait for a thread.
package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// madeKey is the prefix of the keys of items that came without one, and of no others. A repeat cannot have such a key,
// so the key need not be stored.
const madeKey = "skein:seq:"

// Enqueue adds an item to an inbox, that of the thread or of op.To.
func Enqueue(t *txn.Tx, from *txn.Head, op *store.Enqueue) error {
	h, err := receiver(t, from, op)
	if h == nil || err != nil {
		return err
	}
	ended := checkActive(h)
	if ended != nil && op.IgnoreTerminated {
		return nil
	}
	given := op.Item.Key != "" && !strings.HasPrefix(op.Item.Key, madeKey)
	if given {
		if op.Existed, err = t.Exists(queries.InboxKey, []any{h.Key, op.Item.Key}, &op.Seq); op.Existed || err != nil {
			return err
		}
	}
	if ended != nil { // only after the key: a repeat gets what the first one got, whatever became of the thread
		return ended
	}
	// What has no room is refused whether a run is under way or not: a run must not give way to it.
	if err := checkRoom(t, h, op); err != nil {
		return err
	}
	limited := op.MaxUserMessages > 0 && op.Item.Kind == store.InboxMessage
	if limited && h.Queued >= int64(op.MaxUserMessages) { // otherwise fewer than that are limited, and none need be counted
		var n int
		if err := t.Row(t.Ctx, queries.LimitedCount, []any{h.Key}, &n); err != nil {
			return err
		}
		if n >= op.MaxUserMessages {
			return fmt.Errorf("thread %s: %w", h.ID, store.ErrQueueFull)
		}
	}
	if err := checkBusy(t, h, op); err != nil {
		return err
	}
	if op.Item.CreatedAt == 0 {
		op.Item.CreatedAt = t.Now
	}
	if op.Item.Kind == store.InboxMessage {
		id, role := payloadOf(op.Item.Payload)
		op.Seq, err = t.Log(h, store.Event{Type: store.EventMessageQueued, MessageID: id})
		if err != nil {
			return err
		}
		if role == store.RoleUser {
			h.UserAt = max(h.UserAt, op.Item.CreatedAt)
		}
		h.Queued++
	} else {
		op.Seq = h.Next()
	}
	op.Item.Seq = op.Seq
	if given {
		if err := t.Write(t.Ctx, queries.UseInboxKey, h.Key, op.Item.Key, op.Seq, t.Now); err != nil {
			return err
		}
	} else {
		op.Item.Key = fmt.Sprint(madeKey, op.Seq)
	}
	if err := t.Write(t.Ctx, queries.InsertInbox, h.Key, op.Seq, op.Item.Key, string(op.Item.Kind), limited,
		sqldb.NullJSON(op.Item.Payload), op.Item.CreatedAt); err != nil {
		return err
	}
	h.Waiting++
	h.Touch(store.ChangedInbox)
	if op.Item.Kind == store.InboxStop {
		h.Touch(store.ChangedStop)
	}
	if op.Unpark {
		return t.Wake(h, txn.AsleepParked)
	}
	return nil
}

// few is up to how many waiting items are never too much, so that their sizes need not be read.
const few = 8

// checkRoom refuses an item from outside when so much waits already, and a message also when the namespace has no room for more.
func checkRoom(t *txn.Tx, h *txn.Head, op *store.Enqueue) error {
	if !op.Bounded {
		return nil
	}
	if op.Item.Kind == store.InboxMessage {
		if err := quotas.MessagesUsedUp(t, h.Namespace); err != nil {
			return err
		}
	}
	waiting := max(h.Waiting, h.Queued) // messages count also while they are delayed
	if waiting < few {
		return nil
	}
	var bytes int64
	if waiting < store.MaxWaiting {
		if err := t.Row(t.Ctx, queries.WaitingBytes, []any{h.Key}, &bytes); err != nil {
			return err
		}
	}
	if waiting >= store.MaxWaiting || bytes+int64(len(op.Item.Payload)) > store.MaxWaitingBytes {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrInboxFull)
	}
	return nil
}

// checkBusy refuses an item that asks for an idle thread when the thread is busy.
func checkBusy(t *txn.Tx, h *txn.Head, op *store.Enqueue) error {
	if !op.IfNoRun && !op.IfIdle {
		return nil
	}
	under, err := runs.HasRunUnderWay(t, h)
	if err != nil {
		return err
	}
	if under || op.IfIdle && h.Queued > 0 && !h.Sleeps() {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrRunning)
	}
	return nil
}

// Wake wakes the run of a thread that a query finds waiting, so that it looks again at what it waits for. The query takes the key of the
// thread.
func Wake(t *txn.Tx, h *txn.Head, query string) error {
	var one int
	if waits, err := sqldb.Found(t.Row(t.Ctx, query, []any{h.Key}, &one)); err != nil || !waits {
		return err
	}
	return Enqueue(t, h, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true})
}

// receiver returns the thread that an item goes to; nil when that was purged and the item is to be dropped.
func receiver(t *txn.Tx, from *txn.Head, op *store.Enqueue) (*txn.Head, error) {
	if op.To == "" || op.To == from.ID {
		return from, nil
	}
	h, err := t.HeadIn(from.Namespace, op.To)
	if errors.Is(err, store.ErrNotFound) && op.IgnoreTerminated { // a purged thread counts as terminated
		return nil, nil
	}
	return h, err
}

// checkActive returns why a thread takes no new items, or nil when it takes them.
func checkActive(h *txn.Head) error {
	switch {
	case h.Life.Asleep&txn.AsleepRetained != 0:
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrRetained)
	case h.TerminatedAt != 0, h.Deleting():
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrTerminated)
	}
	return nil
}

// Dequeue removes items. Those that are already gone are no error.
func Dequeue(t *txn.Tx, h *txn.Head, op *store.Dequeue) error {
	for _, seq := range op.Seqs {
		took, err := takeMessage(t, h, seq)
		if err != nil {
			return err
		}
		if took {
			continue
		}
		var kind store.InboxKind
		var delayedUntil int64
		err = t.Row(t.Ctx, queries.DeleteInbox, []any{h.Key, seq}, &kind, &delayedUntil)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if delayedUntil == 0 {
			h.Waiting--
		}
		if kind == store.InboxMessage {
			h.Queued--
		}
		h.Taken = true
		h.Touch(0)
	}
	return nil
}

// takeMessage removes an item if it is a message that is not delayed, as most items are, and reports whether it was there. A statement that
// returns nothing costs SQLite less than one that says what it has removed; over a network it would be a round trip more.
func takeMessage(t *txn.Tx, h *txn.Head, seq int64) (took bool, err error) {
	if !t.OneWriter() {
		return false, nil
	}
	n, err := t.Exec(t.Ctx, queries.DeleteMessageItem, h.Key, seq)
	if n == 0 || err != nil {
		return false, err
	}
	h.Waiting--
	h.Queued--
	h.Taken = true
	h.Touch(0)
	return true, nil
}

// Delay keeps an item from counting as work until it becomes due again. An item that is delayed already counts no work, so only its time
// changes.
func Delay(t *txn.Tx, h *txn.Head, op *store.Delay) error {
	n, err := t.Exec(t.Ctx, queries.DelayInbox, op.Until, op.Tries, h.Key, op.Seq)
	if err != nil {
		return err
	}
	if n == 0 {
		return t.Write(t.Ctx, queries.DelayLonger, op.Until, op.Tries, h.Key, op.Seq)
	}
	h.Waiting -= n
	h.Taken = true
	h.Touch(0)
	return nil
}

// Inbox implements store.Store.
func (s Store) Inbox(ctx context.Context, threadID string) ([]store.InboxItem, error) {
	var items []store.InboxItem
	err := s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, key int64) (err error) {
		items, err = sqldb.List(ctx, c, Scan, queries.Inbox, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox of thread %s: %w", threadID, err)
	}
	return items, nil
}

// InboxItem implements store.Store.
func (s Store) InboxItem(ctx context.Context, threadID, key string) (item *store.InboxItem, err error) {
	err = s.DB.OfThread(ctx, threadID, func(c *sqldb.Conn, thread int64) error {
		item, err = Scan(c.One(ctx, queries.InboxKeyed, thread, key))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox item %s of thread %s: %w", key, threadID, err)
	}
	return item, nil
}

// payloadOf returns the id and the role of the message in an inbox item; "" for each that it lacks.
func payloadOf(payload json.RawMessage) (id string, role store.Role) {
	var m struct {
		ID   string     `json:"id"`
		Role store.Role `json:"role"`
	}
	_ = json.Unmarshal(payload, &m)
	return m.ID, m.Role
}

// Scan reads an item.
func Scan(scan sqldb.Scanner) (*store.InboxItem, error) {
	var i store.InboxItem
	var payload sqldb.Text
	if err := scan(&i.Seq, &i.Key, &i.Kind, &payload, &i.CreatedAt, &i.DelayedUntil, &i.Tries); err != nil {
		return nil, err
	}
	i.Payload = payload.Raw()
	return &i, nil
}

// Empty removes all items.
func Empty(t *txn.Tx, h *txn.Head) error {
	h.Waiting, h.Queued, h.Taken = 0, 0, true
	h.Touch(store.ChangedThread)
	return t.Write(t.Ctx, queries.EmptyInbox, h.Key)
}

// Store reads inboxes.
type Store struct{ DB *txn.DB }
