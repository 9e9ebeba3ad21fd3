// Package firings keeps the firings of ScheduledEffects: what is due, who runs it, how it ended, and how far each
// schedule has come.
package firings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/webhooks"
)

// Store implements store.FiringStore.
type Store struct{ DB *txn.DB }

func scan(scan sqldb.Scanner) (*store.Firing, error) {
	var f store.Firing
	var args, target sqldb.Text
	if err := scan(&f.EffectID, &f.Due, &f.ThreadID, &f.Namespace, &f.Name, &f.Effect, &args, &f.Status, &f.Attempts,
		&f.Error, &f.FiredAt, &f.EndedAt, &f.HookDepth, &f.Epoch, &f.Origin, &target, &f.Waiting, &f.StartedAt, &f.Cost, &f.AvailableAt, &f.Log, &f.KeyedBy); err != nil {
		return nil, err
	}
	f.Args, f.Target = args.Raw(), target.Raw()
	return &f, nil
}

// changed notifies that firings of an effect changed.
func changed(t *txn.Tx, effectID, threadID string) {
	t.Notifications = append(t.Notifications, store.Notification{ThreadID: threadID, EffectID: effectID, Changed: store.ChangedFiring})
}

// record writes a firing unless it exists, and removes the stored arguments that it has a copy of.
func record(t *txn.Tx, f *store.Firing) (recorded bool, err error) {
	if f.FiredAt == 0 {
		f.FiredAt = t.Now
	}
	if f.Status == "" {
		f.Status = store.FiringPending
	}
	n, err := t.Exec(t.Ctx, queries.RecordFiring, f.EffectID, f.Due, f.ThreadID, f.Namespace, f.Name, f.Effect, sqldb.NullJSON(f.Args),
		string(f.Status), f.FiredAt, f.HookDepth, string(f.Origin), sqldb.NullJSON(f.Target), max(t.Now, f.AvailableAt), f.EffectID, f.ThreadID, f.Namespace)
	if err != nil {
		return false, err
	}
	if n > 0 {
		changed(t, f.EffectID, f.ThreadID)
	}
	if f.TakesArgs != "" {
		err = t.Write(t.Ctx, queries.EndArgs, f.TakesArgs, f.ThreadID)
	}
	return n > 0, err
}

// RecordFiring implements store.FiringStore.
func (s Store) RecordFiring(ctx context.Context, f store.Firing) (recorded bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
		if err := t.Lock(f.EffectID); err != nil { // so that the effect is not removed meanwhile
			return err
		}
		recorded, err = record(t, &f)
		return err
	})
	return recorded && err == nil, err
}

// PendingFirings implements store.FiringStore.
func (s Store) PendingFirings(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{}
	err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		return c.Rows(ctx, queries.PendingFirings, nil, func(scan sqldb.Scanner) error {
			var namespace string
			var n int64
			err := scan(&namespace, &n)
			counts[namespace] = n
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count firings: %w", err)
	}
	return counts, nil
}

// ClaimFirings implements store.FiringStore.
func (s Store) ClaimFirings(ctx context.Context, owner string, ttl time.Duration, shares map[string]int, running ...store.FiringKey) ([]store.Firing, error) {
	var claimed []store.Firing
	err := s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		claimed = nil
		for _, namespace := range slices.Sorted(maps.Keys(shares)) {
			firings, err := s.claim(t, owner, ttl, namespace, shares[namespace], running)
			if err != nil {
				return err
			}
			claimed = append(claimed, firings...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim firings: %w", err)
	}
	return claimed, nil
}

// claim claims firings of one namespace.
func (s Store) claim(t *txn.Tx, owner string, ttl time.Duration, namespace string, limit int, running []store.FiringKey) (claimed []store.Firing, err error) {
	until := t.Now + ttl.Microseconds()
	lapsed, err := s.extendLapsed(t, owner, until, namespace, limit, running)
	if err != nil {
		return nil, err
	}
	// Where there are many writers this locks what it reads, so it reads no more than is likely to be claimed.
	if err := t.Rows(t.Ctx, s.DB.Dialect.Claimable, []any{namespace, t.Now, limit + lapsed}, func(sc sqldb.Scanner) error {
		f, err := scan(sc)
		if err != nil {
			return err
		}
		if len(claimed) < limit && !slices.Contains(running, f.Key()) { // another may have claimed one after the caller, and not renewed it
			f.Attempts++
			f.Epoch++
			claimed = append(claimed, *f)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, f := range claimed {
		// The clock that found it due may be a little ahead of the store's. It did not begin before that.
		if err := t.Write(t.Ctx, queries.ClaimFiring, owner, until, max(t.Now, f.FiredAt), f.EffectID, f.Due, f.ThreadID); err != nil {
			return nil, err
		}
	}
	return claimed, nil
}

// extendLapsed extends the claims of firings that run in the caller and have expired, and returns how many have. Like the claim, it does not
// wait for another replica that is claiming one of them.
func (s Store) extendLapsed(t *txn.Tx, owner string, until int64, namespace string, limit int, running []store.FiringKey) (lapsed int, err error) {
	if len(running) == 0 {
		return 0, nil
	}
	var keys []store.FiringKey
	if err := t.Rows(t.Ctx, queries.ClaimableKeys, []any{namespace, t.Now, limit + len(running)}, func(sc sqldb.Scanner) error {
		var k store.FiringKey
		err := sc(&k.EffectID, &k.Due, &k.ThreadID)
		if slices.Contains(running, k) {
			keys = append(keys, k)
		}
		return err
	}); err != nil {
		return 0, err
	}
	for _, k := range keys {
		if err := t.Write(t.Ctx, s.DB.Dialect.ExtendFiring, until, k.EffectID, k.Due, k.ThreadID, owner); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// RenewFirings implements store.FiringStore.
func (s Store) RenewFirings(ctx context.Context, ttl time.Duration, claims []store.FiringClaim) (lost []store.FiringKey, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		lost = nil
		for _, c := range claims {
			n, err := t.Exec(t.Ctx, queries.RenewFiring, t.Now+ttl.Microseconds(), c.Key.EffectID, c.Key.Due, c.Key.ThreadID, c.Epoch)
			if err != nil {
				return err
			}
			if n == 0 {
				lost = append(lost, c.Key)
			}
		}
		return nil
	})
	return lost, err
}

// ReleaseFirings implements store.FiringStore.
func (s Store) ReleaseFirings(ctx context.Context, owner string, begun ...store.FiringKey) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		var released int64
		for _, k := range begun {
			n, err := t.Exec(t.Ctx, queries.ReleaseBegun, t.Now, k.EffectID, k.Due, k.ThreadID, owner)
			if err != nil {
				return err
			}
			released += n
		}
		n, err := t.Exec(t.Ctx, queries.ReleaseFirings, t.Now, owner)
		if n+released > 0 {
			t.Notifications = append(t.Notifications, store.Notification{EffectID: store.AnyEffect, Changed: store.ChangedFiring})
		}
		return err
	})
}

// FinishFiring implements store.FiringStore.
func (s Store) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	k := end.Key
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		var ended, uncounted int64
		if end.Status != store.FiringPending {
			ended = t.Now
		}
		if end.Waiting != "" {
			uncounted = 1
		}
		unbegun := uncounted // the first attempt has not begun if it was to be this one
		if end.Began {
			unbegun = 0
		}
		n, err := t.Exec(t.Ctx, queries.FinishFiring, string(end.Status), end.Error, ended, t.Now+end.RetryAfter.Microseconds(), end.Waiting, end.Cost, end.Log,
			uncounted, unbegun, k.EffectID, k.Due, k.ThreadID, end.Epoch)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("firing of effect %s due %d: %w", k.EffectID, k.Due, store.ErrFiringLost)
		}
		return ends(t, end)
	})
}

// ends counts an end for the schedule, and notifies of it.
func ends(t *txn.Tx, end store.FiringEnd) error {
	changed(t, end.Key.EffectID, end.Key.ThreadID)
	if end.Status == store.FiringFailed {
		if err := queueWebhook(t, end.Key); err != nil {
			return err
		}
	}
	switch {
	case !end.Counts:
		return nil
	case end.Status == store.FiringSucceeded:
		return t.Write(t.Ctx, queries.ScheduleSucceeded, end.Key.EffectID)
	case end.Status == store.FiringFailed:
		return t.Write(t.Ctx, queries.ScheduleFailed, end.Key.EffectID)
	}
	return nil
}

// queueWebhook queues what webhooks are told of a firing that has failed.
func queueWebhook(t *txn.Tx, k store.FiringKey) error {
	f, err := scan(t.One(t.Ctx, queries.Firing, k.EffectID, k.Due, k.ThreadID))
	if err != nil {
		return err
	}
	return webhooks.QueueOfFiring(t, f, store.WebhookEffectFailed, map[string]any{
		"scheduledEffect": f.Name, "effect": f.Effect, "due": f.Due, "attempts": f.Attempts, "error": f.Error,
	})
}

// CancelFirings implements store.FiringStore.
func (s Store) CancelFirings(ctx context.Context, reason string, keys ...store.FiringKey) (canceled int, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		canceled = 0
		for _, k := range keys {
			ok, err := cancel(t, reason, k)
			if err != nil {
				return err
			}
			if ok {
				canceled++
			}
		}
		return nil
	})
	return canceled, err
}

func cancel(t *txn.Tx, reason string, k store.FiringKey) (bool, error) {
	cost, err := spentBy(t, k)
	if err != nil {
		return false, err
	}
	n, err := t.Exec(t.Ctx, queries.CancelFiring, reason, t.Now, cost, k.EffectID, k.Due, k.ThreadID)
	if n > 0 {
		changed(t, k.EffectID, k.ThreadID)
	}
	return n > 0, err
}

// ReleaseQueued implements store.FiringStore.
func (s Store) ReleaseQueued(ctx context.Context, effectID, threadID string, to store.FiringStatus) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		n, err := t.Exec(t.Ctx, queries.ReleaseQueued, string(to), t.Now, effectID, threadID, effectID, threadID, effectID, threadID)
		if n > 0 {
			changed(t, effectID, threadID)
		}
		return err
	})
}

// errBegun undoes the removal of an effect of which a firing has begun.
var errBegun = errors.New("a firing of the effect was claimed or has ended")

// RemoveEffect implements store.FiringStore. It cancels before it looks for claims, because a concurrent claim then either is committed and
// seen, or skips the rows.
func (s Store) RemoveEffect(ctx context.Context, effectID string) (removed bool, err error) {
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		if err := s.stop(t, effectID); err != nil {
			return err
		}
		var one string
		begun, err := sqldb.Found(t.Row(t.Ctx, queries.ClaimedFirings, []any{effectID}, &one))
		if err == nil && begun {
			return errBegun
		}
		return err
	})
	if errors.Is(err, errBegun) {
		return false, nil
	}
	return err == nil, err
}

// StopEffect implements store.FiringStore.
func (s Store) StopEffect(ctx context.Context, effectID string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error { return s.stop(t, effectID) })
}

// stop keeps an effect from firing again, and cancels its firings without a claim.
func (s Store) stop(t *txn.Tx, effectID string) error {
	// RecordDue needs no lock, because it changes the row that RemoveEffect changes.
	if err := t.Lock(effectID); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.RemoveSchedule, effectID, t.Now); err != nil {
		return err
	}
	canceled, err := t.Exec(t.Ctx, queries.CancelEffect, t.Now, effectID)
	if canceled > 0 {
		changed(t, effectID, "")
	}
	return err
}
