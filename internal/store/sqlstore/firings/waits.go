package firings

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// WaitFiring implements store.FiringStore.
func (s Store) WaitFiring(ctx context.Context, c store.FiringClaim, _, waiting string) error {
	k := c.Key
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		n, err := t.Exec(t.Ctx, queries.WaitFiring, waiting, k.EffectID, k.Due, k.ThreadID, c.Epoch)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("firing of effect %s due %d: %w", k.EffectID, k.Due, store.ErrFiringLost)
		}
		changed(t, k.EffectID, k.ThreadID)
		return nil
	})
}
