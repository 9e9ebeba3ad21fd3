package firings

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

func scanSchedule(scan sqldb.Scanner) (*store.EffectSchedule, error) {
	var s store.EffectSchedule
	var removed int64
	err := scan(&s.EffectID, &s.Namespace, &s.Name, &s.Fingerprint, &s.Cursor, &s.Fired, &s.Failures, &s.Skipped, &s.Day, &s.DayFired, &removed, &s.Times)
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
		fired, err := answer(t, &d)
		if err != nil {
			return err
		}
		if err := move(t, &d); err != nil {
			return err
		}
		for i := range d.Firings {
			f := &d.Firings[i]
			if f.Origin == store.OriginBackfill && fired.Has(f.Due) {
				continue
			}
			recorded, err := record(t, f)
			if err == nil && !recorded && f.Origin == store.OriginManual {
				err = fmt.Errorf("effect %s has a firing at the time of a request by hand: %w", f.EffectID, store.ErrConflict)
			}
			if err != nil {
				return err
			}
		}
		for _, k := range d.Cancel {
			if _, err := cancel(t, "replaced by the firing that was due next", k); err != nil {
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

// answer records the requests by hand that a record answers. For a backfill it returns which due times fired before.
func answer(t *txn.Tx, d *store.DueRecord) (fired store.FiredTimes, err error) {
	id := d.Schedule.EffectID
	backfills := slices.ContainsFunc(d.Firings, func(f store.Firing) bool { return f.Origin == store.OriginBackfill })
	if len(d.Requests) == 0 && !backfills {
		return fired, nil
	}
	if err := t.Lock(id); err != nil { // so that no history is removed meanwhile
		return fired, err
	}
	for _, request := range d.Requests {
		n, err := t.Exec(t.Ctx, queries.AddRequest, id, request.ID, t.Now, string(request.Answer))
		if err == nil && n == 0 {
			err = fmt.Errorf("request %q of effect %s was answered before: %w", request.ID, id, store.ErrConflict)
		}
		if err != nil {
			return fired, err
		}
	}
	if backfills {
		fired, err = firedTimes(t.Ctx, t, id)
	}
	return fired, err
}

// rower reads one row.
type rower interface {
	Row(ctx context.Context, query string, args []any, dst ...any) error
}

// firedTimes returns the due times of an effect that fired and that its history no longer has.
func firedTimes(ctx context.Context, c rower, effectID string) (fired store.FiredTimes, err error) {
	var text string
	if found, err := sqldb.Found(c.Row(ctx, queries.FiredTimes, []any{effectID}, &text)); err != nil || !found {
		return fired, err
	}
	if err := json.Unmarshal([]byte(text), &fired); err != nil {
		return fired, fmt.Errorf("due times at which effect %s fired: %w", effectID, err)
	}
	return fired, nil
}

// AnsweredRequests implements store.FiringStore.
func (s Store) AnsweredRequests(ctx context.Context, effectID string, ids ...string) (answered map[string]json.RawMessage, err error) {
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		answered = map[string]json.RawMessage{}
		for _, id := range ids {
			var answer string
			found, err := sqldb.Found(c.Row(ctx, queries.AnsweredRequest, []any{effectID, id}, &answer))
			if err != nil {
				return err
			}
			if found {
				answered[id] = json.RawMessage(answer)
			}
		}
		return nil
	})
	return answered, err
}

// FiredTimes implements store.FiringStore.
func (s Store) FiredTimes(ctx context.Context, effectID string) (fired store.FiredTimes, err error) {
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		fired, err = firedTimes(ctx, c, effectID)
		return err
	})
	return fired, err
}

// move replaces what is stored of how far the schedule has come, on condition that it is what the caller expects.
func move(t *txn.Tx, d *store.DueRecord) error {
	e := d.Schedule
	var n int64
	var err error
	if d.Was == nil {
		n, err = t.Exec(t.Ctx, queries.AddSchedule, e.EffectID, e.Namespace, e.Name, e.Fingerprint, e.Cursor, e.Fired, e.Skipped, e.Day, e.DayFired, e.Times, t.Now)
	} else {
		var reset int64
		if d.ResetFailures {
			reset = 1
		}
		n, err = t.Exec(t.Ctx, queries.MoveSchedule, e.Fingerprint, e.Cursor, e.Fired, e.Skipped-d.Was.Skipped, e.Day, e.DayFired, e.Times, t.Now, reset,
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

// Outcome implements store.FiringStore.
func (s Store) Outcome(ctx context.Context, effectID string) (*store.Firing, error) {
	f, err := sqldb.ReadOne(ctx, s.DB.Readers, scan, queries.Outcome, effectID)
	if err != nil {
		return nil, fmt.Errorf("outcome of effect %s: %w", effectID, err)
	}
	return f, nil
}

// LastEnded implements store.FiringStore.
func (s Store) LastEnded(ctx context.Context, effectID string) (*store.Firing, error) {
	f, err := sqldb.ReadOne(ctx, s.DB.Readers, scan, queries.LastEnded, effectID)
	if err != nil {
		return nil, fmt.Errorf("firing of effect %s that ended last: %w", effectID, err)
	}
	return f, nil
}

// PruneFirings implements store.FiringStore.
func (s Store) PruneFirings(ctx context.Context, effectID string, keep store.HistoryLimits) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Lock(effectID); err != nil { // so that no backfill is recorded meanwhile
			return err
		}
		outcomes, before := 0, int64(math.MaxInt64)
		if keep.Outcome {
			outcomes = 1
		}
		if keep.Since != 0 {
			before = keep.Since
		}
		var removed []int64
		for _, p := range []struct {
			a, b store.FiringStatus
			keep int
		}{{store.FiringSucceeded, store.FiringSucceeded, keep.Succeeded}, {store.FiringFailed, store.FiringCanceled, keep.Failed}} {
			err := t.Rows(t.Ctx, queries.PruneFirings, []any{effectID, string(p.a), string(p.b), before, effectID, string(p.a), string(p.b), p.keep, effectID, outcomes}, func(scan sqldb.Scanner) error {
				var due int64
				var origin store.FiringOrigin
				err := scan(&due, &origin)
				if origin != store.OriginManual {
					removed = append(removed, due)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := keepFired(t, effectID, removed); err != nil {
			return err
		}
		if err := t.Write(t.Ctx, queries.PruneRequests, effectID, t.Now-keptRequests.Microseconds()); err != nil {
			return err
		}
		return t.Write(t.Ctx, queries.PruneSkips, effectID, effectID, max(keep.Failed, 1))
	})
}

// keptRequests is how long an answered request by hand is remembered. Older ones are refused.
const keptRequests = 48 * time.Hour

// keepFired remembers due times that fired and whose firings are removed.
func keepFired(t *txn.Tx, effectID string, dues []int64) error {
	if len(dues) == 0 {
		return nil
	}
	fired, err := firedTimes(t.Ctx, t, effectID)
	if err != nil {
		return err
	}
	slices.Sort(dues)
	for _, due := range dues {
		fired.Add(due)
	}
	data, err := json.Marshal(fired)
	if err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.PutFiredTimes, effectID, string(data))
}

// ForgetEffect implements store.FiringStore.
func (s Store) ForgetEffect(ctx context.Context, effectID string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		for _, query := range []string{queries.ForgetFirings, queries.ForgetSkips, queries.ForgetSchedule, queries.ForgetFired, queries.ForgetRequests} {
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
func (s Store) EndedEffects(ctx context.Context, after string, before time.Time, limit int) ([]store.FiredEffect, error) {
	return sqldb.ReadList(ctx, s.DB.Readers, scanFired, queries.EndedEffects, after, before.UnixMicro(), sqldb.PageSize(limit))
}

// UnendedEffects implements store.FiringStore.
func (s Store) UnendedEffects(ctx context.Context, after string, limit int) ([]store.FiredEffect, error) {
	return sqldb.ReadList(ctx, s.DB.Readers, scanFired, queries.UnendedEffects, after, sqldb.PageSize(limit))
}

func scanFired(scan sqldb.Scanner) (*store.FiredEffect, error) {
	var e store.FiredEffect
	return &e, scan(&e.EffectID, &e.Namespace, &e.Name)
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

// StoredEffectArgs implements store.FiringStore.
func (s Store) StoredEffectArgs(ctx context.Context, threadID string) ([]string, error) {
	return sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.StoredArgs, threadID)
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
