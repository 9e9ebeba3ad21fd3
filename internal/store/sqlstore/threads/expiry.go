package threads

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// The idle expiry of a thread is a timer that may run late. Writes do not move it. When it fires, the thread is
// checked, and if something has happened meanwhile, the timer is set again from then. So a busy thread pays one write
// each time that its expiry passes, and nothing for its messages.

// SetIdleExpiry sets the duration after which an idle thread expires.
func SetIdleExpiry(t *txn.Tx, h *txn.Head, expiry int64) error {
	if expiry < 0 {
		return fmt.Errorf("thread %s: the idle expiry is %d µs, it must be 0 or more", h.ID, expiry)
	}
	if expiry == h.Life.IdleExpiry {
		return nil
	}
	at := sql.NullInt64{Int64: t.Now + expiry, Valid: expiry > 0}
	if expiry > 0 && !h.Fresh {
		if err := t.Row(t.Ctx, queries.Activity, []any{h.Key}, &at.Int64); err != nil {
			return err
		}
		at.Int64 += expiry
	}
	h.Life.IdleExpiry, h.Life.ExpiresAt = expiry, at
	_, err := t.Exec(t.Ctx, queries.SetExpiry, expiry, at, h.Key)
	return err
}

// hasExpired reports whether a thread has been idle for as long as its expiry and is not busy. If not, it sets the timer
// for the next check. A thread that is being deleted does not expire, because its data may still be saved.
func hasExpired(t *txn.Tx, h *txn.Head) (bool, error) {
	if h.Life.IdleExpiry == 0 || h.TerminatedAt != 0 || h.Life.Asleep&(txn.AsleepRetained|txn.AsleepDeleting) != 0 {
		return false, t.SetExpiresAt(h, sql.NullInt64{})
	}
	var active int64
	if err := t.Row(t.Ctx, queries.Activity, []any{h.Key}, &active); err != nil {
		return false, err
	}
	due := active + h.Life.IdleExpiry
	busy, err := isBusy(t, h)
	if err != nil {
		return false, err
	}
	if !busy && due <= t.Now {
		return true, nil
	}
	if due <= t.Now { // the end of the work will count as activity
		due = t.Now + h.Life.IdleExpiry
	}
	return false, t.SetExpiresAt(h, sql.NullInt64{Int64: due, Valid: true})
}

// isBusy reports whether a thread has work (also work that is held), a run in progress or waiting, or a holder.
func isBusy(t *txn.Tx, h *txn.Head) (bool, error) {
	if h.Running > 0 || h.Waiting > 0 {
		return true, nil
	}
	last, err := runs.ScanOf(h.ID)(t.One(t.Ctx, queries.NewestRun, h.Key))
	switch {
	case err == nil && !last.Status.Ended():
		return true, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	var held int64
	if holds, err := sqldb.Found(t.Row(t.Ctx, queries.DelayedIn, []any{h.Key}, &held)); err != nil || holds {
		return holds, err
	}
	var until int64
	leased, err := sqldb.Found(t.Row(t.Ctx, queries.LeaseUntil, []any{h.Key}, &until))
	return leased && until > t.Now, err
}

// Expired implements store.Store. It lists threads whose timer has fired.
func (s Store) Expired(ctx context.Context, limit int) ([]string, error) {
	ids, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.IdleExpired, s.DB.Now(), sqldb.PageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("look for expired threads: %w", err)
	}
	return ids, nil
}
