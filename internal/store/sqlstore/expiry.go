package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// The idle expiry of a thread is a timer that may run late. Writes do not move it. When it fires, the thread is
// checked, and if something has happened meanwhile, the timer is set again from then. So a busy thread pays one write
// each time that its expiry passes, and nothing for its messages.

// setIdleExpiry sets the duration after which an idle thread expires.
func (t *tx) setIdleExpiry(h *head, expiry int64) error {
	if expiry < 0 {
		return fmt.Errorf("thread %s: the idle expiry is %d µs, it must be 0 or more", h.id, expiry)
	}
	if expiry == h.life.idleExpiry {
		return nil
	}
	at := sql.NullInt64{Int64: t.now + expiry, Valid: expiry > 0}
	if expiry > 0 && !h.fresh {
		if err := t.row(t.ctx, qActivity, []any{h.key}, &at.Int64); err != nil {
			return err
		}
		at.Int64 += expiry
	}
	h.life.idleExpiry, h.life.expiresAt = expiry, at
	_, err := t.exec(t.ctx, qSetExpiry, expiry, at, h.key)
	return err
}

func (t *tx) setExpiresAt(h *head, at sql.NullInt64) error {
	if h.life.expiresAt == at {
		return nil
	}
	h.life.expiresAt = at
	_, err := t.exec(t.ctx, qArmExpiry, at, h.key)
	return err
}

// armExpiry sets the timer of a thread in which something has happened since it was destroyed.
func (t *tx) armExpiry(h *head) error {
	if h.life.idleExpiry == 0 || h.life.expiresAt.Valid || h.life.cleared || h.terminatedAt != 0 {
		return nil
	}
	return t.setExpiresAt(h, sql.NullInt64{Int64: t.now + h.life.idleExpiry, Valid: true})
}

// expired reports whether a thread has been idle for as long as its expiry and is not busy. If not, it sets the timer
// for the next check.
func (t *tx) expired(h *head) (bool, error) {
	if h.life.idleExpiry == 0 || h.terminatedAt != 0 || h.life.asleep&asleepRetained != 0 {
		return false, t.setExpiresAt(h, sql.NullInt64{})
	}
	var active int64
	if err := t.row(t.ctx, qActivity, []any{h.key}, &active); err != nil {
		return false, err
	}
	due := active + h.life.idleExpiry
	busy, err := t.busy(h)
	if err != nil {
		return false, err
	}
	if !busy && due <= t.now {
		return true, nil
	}
	if due <= t.now { // the end of the work will count as activity
		due = t.now + h.life.idleExpiry
	}
	return false, t.setExpiresAt(h, sql.NullInt64{Int64: due, Valid: true})
}

// busy reports whether a thread has work (also work that is held), a run in progress or waiting, or a holder.
func (t *tx) busy(h *head) (bool, error) {
	if h.running > 0 || h.waiting > 0 {
		return true, nil
	}
	last, err := runOf(h.id)(t.one(t.ctx, qNewestRun, h.key))
	switch {
	case err == nil && !last.Status.Ended():
		return true, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	var held int64
	if holds, err := found(t.row(t.ctx, qHeldIn, []any{h.key}, &held)); err != nil || holds {
		return holds, err
	}
	var until int64
	leased, err := found(t.row(t.ctx, qLeaseUntil, []any{h.key}, &until))
	return leased && until > t.now, err
}

// Expired implements store.Store. It lists threads whose timer has fired.
func (s *Store) Expired(ctx context.Context, limit int) ([]string, error) {
	ids, err := readColumn[string](ctx, s.readers, qIdleExpired, s.now(), pageSize(limit))
	if err != nil {
		return nil, fmt.Errorf("look for expired threads: %w", err)
	}
	return ids, nil
}
