package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// RecordFiring implements store.Store.
func (s *Store) RecordFiring(ctx context.Context, f store.Firing) (recorded bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		if f.FiredAt == 0 {
			f.FiredAt = t.now
		}
		n, err := t.exec(t.ctx, qRecordFiring, f.EffectID, f.Due, f.ThreadID, f.Namespace, f.Name, f.Effect, nullJSON(f.Args),
			string(store.FiringPending), 0, "", f.FiredAt, 0, f.HookDepth, t.now)
		if recorded = n > 0; recorded {
			t.notifications = append(t.notifications, store.Notification{ThreadID: f.ThreadID, Changed: store.ChangedFiring})
		}
		return err
	})
	return recorded && err == nil, err
}

// ClaimFirings implements store.Store.
func (s *Store) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, limit int, running ...store.FiringKey) ([]store.Firing, error) {
	if limit <= 0 {
		limit = defaultPage
	}
	var one int
	err := s.readers.read(ctx, func(c *conn) error { return c.row(ctx, qFiringsReady, []any{s.now()}, &one) })
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // the most frequent case costs no write
	}
	if err != nil {
		return nil, err
	}
	var claimed []store.Firing
	err = s.writer.do(ctx, func(t *tx) error {
		claimed = nil
		var lapsed []store.FiringKey
		if err := t.rows(t.ctx, s.dialect.claimable, []any{t.now, limit + len(running)}, func(scan scanner) error {
			f, err := scanFiring(scan)
			if err != nil {
				return err
			}
			if key := (store.FiringKey{EffectID: f.EffectID, Due: f.Due}); slices.Contains(running, key) {
				lapsed = append(lapsed, key)
			} else if len(claimed) < limit {
				f.Attempts++
				claimed = append(claimed, *f)
			}
			return nil
		}); err != nil {
			return err
		}
		for _, k := range lapsed {
			if err := t.write(t.ctx, qRenewFiring, owner, t.now+ttl.Microseconds(), k.EffectID, k.Due); err != nil {
				return err
			}
		}
		for _, f := range claimed {
			if err := t.write(t.ctx, qClaimFiring, owner, t.now+ttl.Microseconds(), f.EffectID, f.Due); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim firings: %w", err)
	}
	return claimed, nil
}

// FinishFiring implements store.Store.
func (s *Store) FinishFiring(ctx context.Context, effectID string, due int64, status store.FiringStatus, errText string, retryAfter time.Duration) error {
	return s.writer.do(ctx, func(t *tx) error {
		var ended int64
		if status != store.FiringPending {
			ended = t.now
		}
		var threadID string
		err := t.row(t.ctx, qFinishFiring, []any{string(status), errText, ended, t.now + retryAfter.Microseconds(), effectID, due}, &threadID)
		if errors.Is(err, store.ErrNotFound) {
			_, err = scanFiring(t.one(t.ctx, qFiring, effectID, due))
			if err != nil {
				return fmt.Errorf("firing of effect %s due %d: %w", effectID, due, err)
			}
			return nil
		}
		t.notifications = append(t.notifications, store.Notification{ThreadID: threadID, Changed: store.ChangedFiring})
		return err
	})
}

// Firing implements store.Store.
func (s *Store) Firing(ctx context.Context, effectID string, due int64) (f *store.Firing, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		f, err = scanFiring(c.one(ctx, qFiring, effectID, due))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("firing of effect %s due %d: %w", effectID, due, err)
	}
	return f, nil
}
