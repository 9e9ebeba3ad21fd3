package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// RecordFiring implements store.Store.
func (s *Store) RecordFiring(ctx context.Context, f store.Firing) (recorded bool, err error) {
	err = s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		if f.FiredAt == 0 {
			f.FiredAt = t.Now
		}
		n, err := t.Exec(t.Ctx, queries.RecordFiring, f.EffectID, f.Due, f.ThreadID, f.Namespace, f.Name, f.Effect, sqldb.NullJSON(f.Args),
			string(store.FiringPending), 0, "", f.FiredAt, 0, f.HookDepth, t.Now)
		if recorded = n > 0; recorded {
			t.Notifications = append(t.Notifications, store.Notification{ThreadID: f.ThreadID, Changed: store.ChangedFiring})
		}
		return err
	})
	return recorded && err == nil, err
}

// ClaimFirings implements store.Store.
func (s *Store) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, limit int, running ...store.FiringKey) ([]store.Firing, error) {
	if limit <= 0 {
		limit = sqldb.DefaultPage
	}
	var one int
	err := s.db.Readers.Read(ctx, func(c *sqldb.Conn) error { return c.Row(ctx, queries.FiringsReady, []any{s.db.Now()}, &one) })
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // the most frequent case costs no write
	}
	if err != nil {
		return nil, err
	}
	var claimed []store.Firing
	err = s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		claimed = nil
		var lapsed []store.FiringKey
		if err := t.Rows(t.Ctx, s.db.Dialect.Claimable, []any{t.Now, limit + len(running)}, func(scan sqldb.Scanner) error {
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
			if err := t.Write(t.Ctx, queries.RenewFiring, owner, t.Now+ttl.Microseconds(), k.EffectID, k.Due); err != nil {
				return err
			}
		}
		for _, f := range claimed {
			if err := t.Write(t.Ctx, queries.ClaimFiring, owner, t.Now+ttl.Microseconds(), f.EffectID, f.Due); err != nil {
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
	return s.db.Writer.Do(ctx, func(t *txn.Tx) error {
		var ended int64
		if status != store.FiringPending {
			ended = t.Now
		}
		var threadID string
		err := t.Row(t.Ctx, queries.FinishFiring, []any{string(status), errText, ended, t.Now + retryAfter.Microseconds(), effectID, due}, &threadID)
		if errors.Is(err, store.ErrNotFound) {
			_, err = scanFiring(t.One(t.Ctx, queries.Firing, effectID, due))
			if err != nil {
				return fmt.Errorf("firing of effect %s due %d: %w", effectID, due, err)
			}
			return nil
		}
		t.Notifications = append(t.Notifications, store.Notification{ThreadID: threadID, Changed: store.ChangedFiring})
		return err
	})
}

// Firing implements store.Store.
func (s *Store) Firing(ctx context.Context, effectID string, due int64) (f *store.Firing, err error) {
	err = s.db.Readers.Read(ctx, func(c *sqldb.Conn) error {
		f, err = scanFiring(c.One(ctx, queries.Firing, effectID, due))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("firing of effect %s due %d: %w", effectID, due, err)
	}
	return f, nil
}
