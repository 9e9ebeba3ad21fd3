package messages

import (
	"context"

	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// PurgeAllButMessages removes the rows of a thread that no reader sees any more, but for its messages and what is bounded, in slices. It
// returns the contents that no file has any more.
func PurgeAllButMessages(ctx context.Context, db *txn.DB, id string, key int64) (freed []string, err error) {
	for _, p := range queries.PurgeSlices {
		for n := Slice; n == Slice; {
			if err := db.Writer.Do(ctx, func(t *txn.Tx) (err error) {
				args := []any{key, key, Slice}
				if p.ByID {
					args = []any{id, Slice}
				}
				n, err = t.Exec(t.Ctx, p.Query, args...)
				return err
			}, id); err != nil {
				return nil, err
			}
		}
	}
	for more := true; more; {
		var some []string
		if err := db.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			some, more, err = files.PurgeSome(t, key)
			return err
		}, id); err != nil {
			return nil, err
		}
		freed = append(freed, some...)
	}
	return freed, nil
}
