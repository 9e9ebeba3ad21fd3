package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Work implements store.Store. It reads everything in one snapshot.
func (s *Store) Work(ctx context.Context, threadID string) (*store.Work, error) {
	w := &store.Work{}
	err := s.readers.snapshot(ctx, func(c *conn) (err error) {
		if w.Thread, err = scanThread(c.one(ctx, qThread, threadID)); err != nil {
			return err
		}
		if w.Inbox, err = list(ctx, c, scanInbox, qInboxOf, threadID); err != nil {
			return err
		}
		w.Run, err = runOf(threadID)(c.one(ctx, qRuns, threadID, 1, 0))
		if errors.Is(err, store.ErrNotFound) {
			w.Run, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("work of thread %s: %w", threadID, err)
	}
	return w, nil
}

// Position implements store.Store.
func (s *Store) Position(ctx context.Context, threadID string) (p store.Position, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qPosition, []any{threadID}, &p.Agent, &p.LastSeq)
	})
	if err != nil {
		return p, fmt.Errorf("thread %s: %w", threadID, err)
	}
	return p, nil
}

// LastEdit implements store.Store.
func (s *Store) LastEdit(ctx context.Context, threadID string, after int64) (seq int64, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qLastEdit, []any{after, threadID}, &seq)
	})
	if err != nil {
		return 0, fmt.Errorf("log of thread %s: %w", threadID, err)
	}
	return seq, nil
}
