package firings

import (
	"context"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// MissFiring implements store.FiringStore.
func (s Store) MissFiring(ctx context.Context, end store.FiringEnd) (record store.EffectSkip, begins bool, err error) {
	k := end.Key
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := t.Lock(k.EffectID); err != nil { // so that two due times do not go on with the same record
			return err
		}
		var n int64
		var err error
		if end.Epoch == 0 {
			n, err = t.Exec(t.Ctx, queries.EndRunning, string(store.FiringCanceled), end.Error, t.Now, 0.0, k.EffectID, k.Due, k.ThreadID)
		} else {
			n, err = t.Exec(t.Ctx, queries.FinishFiring, string(store.FiringCanceled), end.Error, t.Now, t.Now, "", 0.0, end.Log, 1, 1, k.EffectID, k.Due, k.ThreadID, end.Epoch)
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("firing of effect %s due %d: %w", k.EffectID, k.Due, store.ErrFiringLost)
		}
		if err != nil {
			return err
		}
		changed(t, k.EffectID, k.ThreadID)
		record, begins, err = miss(t, k, end.Error)
		return err
	})
	return record, begins, err
}

// isByHand reports whether a firing of this due time was asked for by hand. It has a record of its own, and its time is never a whole second.
func isByHand(due int64) bool { return due%time.Second.Microseconds() != 0 }

// miss records that a due time did not fire for a thread. It goes on with the record before it if nothing has fired for the thread since.
func miss(t *txn.Tx, k store.FiringKey, detail string) (record store.EffectSkip, begins bool, err error) {
	record = store.EffectSkip{EffectID: k.EffectID, Due: k.Due, Until: k.Due, ThreadID: k.ThreadID, Count: 1, Reason: store.ReasonMissed, Detail: detail, RecordedAt: t.Now}
	before, err := scanSkip(t.One(t.Ctx, queries.SkipBefore, k.EffectID, k.ThreadID, record.Reason, detail, k.Due))
	found, err := sqldb.Found(err)
	if err != nil {
		return record, false, err
	}
	if found {
		var one int64
		fired, err := sqldb.Found(t.Row(t.Ctx, queries.FiredBetween, []any{k.EffectID, before.Until, k.Due, k.ThreadID}, &one))
		if err != nil {
			return record, false, err
		}
		if !fired && !isByHand(k.Due) && !isByHand(before.Due) {
			record.Due, record.Count = before.Due, before.Count+1
		}
	}
	if err := t.Write(t.Ctx, queries.AddSkip, record.EffectID, record.Due, record.Until, record.ThreadID, record.Count, record.Reason, record.Detail, t.Now); err != nil {
		return record, false, err
	}
	return record, record.Count == 1, t.Write(t.Ctx, queries.ScheduleSkipped, k.EffectID)
}
