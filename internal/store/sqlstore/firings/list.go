package firings

import (
	"context"
	"fmt"
	"math"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// Firing implements store.FiringStore.
func (s Store) Firing(ctx context.Context, k store.FiringKey) (*store.Firing, error) {
	f, err := sqldb.ReadOne(ctx, s.DB.Readers, scan, queries.Firing, k.EffectID, k.Due, k.ThreadID)
	if err != nil {
		return nil, fmt.Errorf("firing of effect %s due %d: %w", k.EffectID, k.Due, err)
	}
	return f, nil
}

// Firings implements store.FiringStore.
func (s Store) Firings(ctx context.Context, q store.FiringQuery) ([]store.Firing, error) {
	query := queries.Firings
	switch {
	case q.Active && q.Brief:
		query = queries.BriefActiveFirings
	case q.Active:
		query = queries.ActiveFirings
	case q.Brief:
		query = queries.BriefFirings
	}
	last, before, thread := int64(math.MaxInt64), int64(math.MaxInt64), ""
	switch {
	case q.BeforeThread != nil:
		last, before, thread = q.Before, q.Before, *q.BeforeThread
	case q.Before != 0:
		last, before = q.Before-1, q.Before
	}
	return sqldb.ReadList(ctx, s.DB.Readers, scan, query, q.EffectID, last, before, thread, sqldb.PageSize(q.Limit))
}
