package firings

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

func scanSchedule(scan sqldb.Scanner) (*store.EffectSchedule, error) {
	var s store.EffectSchedule
	var removed int64
	err := scan(&s.EffectID, &s.Namespace, &s.Name, &s.Fingerprint, &s.Cursor, &s.Fired, &s.Failures, &s.Skipped, &s.Day, &s.DayFired, &removed)
	s.Removed = removed != 0
	return &s, err
}

func scanSkip(scan sqldb.Scanner) (*store.EffectSkip, error) {
	var s store.EffectSkip
	return &s, scan(&s.EffectID, &s.Due, &s.Until, &s.ThreadID, &s.Count, &s.Reason, &s.Detail, &s.RecordedAt)
}

// EffectSchedule implements store.FiringStore.
func (s Store) EffectSchedule(ctx context.Context, effectID string) (*store.EffectSchedule, error) {
	e, err := sqldb.ReadOne(ctx, s.DB.Readers, scanSchedule, queries.EffectSchedule, effectID)
	if err != nil {
		return nil, fmt.Errorf("schedule of effect %s: %w", effectID, err)
	}
	return e, nil
}

// RecordDue implements store.FiringStore.
func (s Store) RecordDue(ctx context.Context, d store.DueRecord) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := move(t, &d); err != nil {
			return err
		}
		for _, k := range d.Cancel {
			if _, err := cancel(t, "replaced by the firing that was due next", k); err != nil {
				return err
			}
		}
		for i := range d.Firings {
			if _, err := record(t, &d.Firings[i]); err != nil {
				return err
			}
		}
		for _, k := range d.Skips {
			if err := t.Write(t.Ctx, queries.AddSkip, k.EffectID, k.Due, k.Until, k.ThreadID, k.Count, k.Reason, k.Detail, t.Now); err != nil {
				return err
			}
		}
		return nil
	})
}

// move replaces what is stored of how far the schedule has come, on condition that it is what the caller expects.
func move(t *txn.Tx, d *store.DueRecord) error {
	e := d.Schedule
	var n int64
	var err error
	if d.Was == nil {
		n, err = t.Exec(t.Ctx, queries.AddSchedule, e.EffectID, e.Namespace, e.Name, e.Fingerprint, e.Cursor, e.Fired, e.Skipped, e.Day, e.DayFired, t.Now)
	} else {
		var reset int64
		if d.ResetFailures {
			reset = 1
		}
		n, err = t.Exec(t.Ctx, queries.MoveSchedule, e.Fingerprint, e.Cursor, e.Fired, e.Skipped, e.Day, e.DayFired, t.Now, reset,
			e.EffectID, d.Was.Fingerprint, d.Was.Cursor)
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("schedule of effect %s: it has moved on or was removed: %w", e.EffectID, store.ErrConflict)
	}
	return err
}

// EffectSkips implements store.FiringStore.
func (s Store) EffectSkips(ctx context.Context, effectID string, limit int) ([]store.EffectSkip, error) {
	return sqldb.ReadList(ctx, s.DB.Readers, scanSkip, queries.Skips, effectID, sqldb.PageSize(limit))
}

// PruneFirings implements store.FiringStore.
func (s Store) PruneFirings(ctx context.Context, effectID string, succeeded, failed int) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, p := range []struct {
			a, b store.FiringStatus
			keep int
		}{{store.FiringSucceeded, store.FiringSucceeded, succeeded}, {store.FiringFailed, store.FiringCanceled, failed}} {
			if err := t.Write(t.Ctx, queries.PruneFirings, effectID, string(p.a), string(p.b), effectID, string(p.a), string(p.b), p.keep); err != nil {
				return err
			}
		}
		return t.Write(t.Ctx, queries.PruneSkips, effectID, effectID, failed)
	})
}

// ForgetEffect implements store.FiringStore.
func (s Store) ForgetEffect(ctx context.Context, effectID string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, query := range []string{queries.ForgetFirings, queries.ForgetSkips, queries.ForgetSchedule} {
			if err := t.Write(t.Ctx, query, effectID); err != nil {
				return err
			}
		}
		changed(t, effectID, "")
		return nil
	})
}

// StoredEffects implements store.FiringStore.
func (s Store) StoredEffects(ctx context.Context, after string, before time.Time, limit int) ([]string, error) {
	return sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.StoredEffects, after, before.UnixMicro(), sqldb.PageSize(limit))
}

// EndedEffects implements store.FiringStore.
func (s Store) EndedEffects(ctx context.Context, after string, before time.Time, limit int) ([]store.EndedEffect, error) {
	return sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.EndedEffect, error) {
		var e store.EndedEffect
		return &e, scan(&e.EffectID, &e.Namespace, &e.Name)
	}, queries.EndedEffects, after, before.UnixMicro(), sqldb.PageSize(limit))
}

// RemoveEffectArgs implements store.FiringStore.
func (s Store) RemoveEffectArgs(ctx context.Context, threadID, id string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return t.Write(t.Ctx, queries.EndArgs, id, threadID) })
}

// PutEffectArgs implements store.FiringStore.
func (s Store) PutEffectArgs(ctx context.Context, a store.EffectArgs) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.PutArgs, a.ID, a.ThreadID, string(a.Args), t.Now)
	})
}

// EffectArgs implements store.FiringStore.
func (s Store) EffectArgs(ctx context.Context, threadID, id string) (args json.RawMessage, err error) {
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		var text string
		err := c.Row(ctx, queries.Args, []any{id, threadID}, &text)
		args = json.RawMessage(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("arguments %s of thread %s: %w", id, threadID, err)
	}
	return args, nil
}
