package firings

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// WaitRunning implements store.FiringStore.
func (s Store) WaitRunning(ctx context.Context, k store.FiringKey, _, waiting string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.WaitRunning, waiting, k.EffectID, k.Due, k.ThreadID)
	})
}

// StartRunning implements store.FiringStore.
func (s Store) StartRunning(ctx context.Context, k store.FiringKey) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.StartRunning, t.Now, t.Now, k.EffectID, k.Due, k.ThreadID)
	})
}

// EndRunning implements store.FiringStore.
func (s Store) EndRunning(ctx context.Context, end store.FiringEnd) error {
	k := end.Key
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		cost, err := spentBy(t, k)
		if err != nil {
			return err
		}
		n, err := t.Exec(t.Ctx, queries.EndRunning, string(end.Status), end.Error, t.Now, end.Cost+cost, k.EffectID, k.Due, k.ThreadID)
		if err != nil || n == 0 {
			return err
		}
		return ends(t, end)
	})
}

// FiringCost implements store.FiringStore.
func (s Store) FiringCost(ctx context.Context, effectID string, from, before int64) (cost float64, err error) {
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		if err := c.Row(ctx, queries.FiringCost, []any{effectID, from, before}, &cost); err != nil {
			return err
		}
		underWay, err := spent(ctx, c, effectID, from, before-1)
		cost += underWay
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cost of the firings of effect %s: %w", effectID, err)
	}
	return cost, nil
}

// spent returns what the Threads of the running firings of an effect have cost so far, from a due time to another.
func spent(ctx context.Context, q sqldb.Querier, effectID string, first, last int64) (cost float64, err error) {
	err = q.Rows(ctx, queries.SpentRunning, []any{effectID, first, last}, func(scan sqldb.Scanner) error {
		var ended float64
		var usage sqldb.Text
		if err := scan(&ended, &usage); err != nil {
			return err
		}
		cost += ended
		if usage.Valid {
			var u store.RunUsage
			_ = json.Unmarshal(usage.Raw(), &u) // usage in another form counts as none
			cost += u.Cost
		}
		return nil
	})
	return cost, err
}

// spentBy returns what the Thread of a firing has cost so far. It is 0 for a firing that has none, or that has ended.
func spentBy(t *txn.Tx, k store.FiringKey) (float64, error) {
	if k.ThreadID != "" {
		return 0, nil
	}
	return spent(t.Ctx, t, k.EffectID, k.Due, k.Due)
}
