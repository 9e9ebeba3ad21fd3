// Package threads holds the records of threads: lists, changes, and the life of a thread from idle to purged.
package threads

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Thread implements store.Store.
func (s Store) Thread(ctx context.Context, id string) (*store.Thread, error) {
	t, err := sqldb.ReadOne(ctx, s.DB.Readers, Scan, queries.Thread, id)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", id, err)
	}
	return t, nil
}

// Children implements store.Store.
func (s Store) Children(ctx context.Context, id string) ([]store.Thread, error) {
	return s.listThreads(ctx, queries.Children, id)
}

func (s Store) listThreads(ctx context.Context, query string, args ...any) ([]store.Thread, error) {
	threads, err := sqldb.ReadList(ctx, s.DB.Readers, Scan, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	return threads, nil
}

// Terminate ends a thread for good and empties its inbox.
func Terminate(t *txn.Tx, h *txn.Head, op *store.Terminate) error {
	op.Left = false
	if op.Already = h.TerminatedAt != 0; op.Already {
		return nil
	}
	if left, err := waitsFor(t, h, op.Unless); left || err != nil {
		op.Left = left
		return err
	}
	if err := inbox.Empty(t, h); err != nil {
		return err
	}
	return end(t, h, op.Reason)
}

// end ends a thread whose inbox is not read any more.
func end(t *txn.Tx, h *txn.Head, reason string) error {
	h.TerminatedAt = t.Now
	if err := t.Write(t.Ctx, queries.Terminate, t.Now, reason, h.Key); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ChildEnded, h.Key); err != nil {
		return err
	}
	return LogTerminated(t, h, reason)
}

// LogTerminated logs that the thread was terminated.
func LogTerminated(t *txn.Tx, h *txn.Head, reason string) error {
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	_, err = t.Log(h, store.Event{Type: store.EventTerminated, Data: data})
	return err
}

// Store reads and purges threads.
type Store struct{ DB *txn.DB }
