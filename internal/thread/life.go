package thread

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Continue lets inbox items that wait since a user's stop be taken (MSG-08). was reports whether the thread was parked.
// It fails with store.ErrTerminated when the thread is terminated.
func (st *State) Continue(ctx context.Context) (was bool, err error) {
	op := &store.Continue{}
	err = st.Apply(ctx, op)
	return op.Was, err
}

// expiryBatch is how many threads one query for expired threads returns.
const expiryBatch = 500

// Expire destroys the conversations whose idle expiry has passed (THR-07), and returns how many. Several replicas may
// do so at once: the store decides on each thread in the transaction that clears it.
func (s *Service) Expire(ctx context.Context) (destroyed int, err error) {
	for {
		ids, err := s.store.Expired(ctx, expiryBatch)
		if err != nil {
			return destroyed, err
		}
		var errs []error
		for _, id := range ids {
			op := &store.Destroy{Reason: store.DestroyedExpired, IfExpired: true}
			switch err := s.store.Apply(ctx, id, nil, op); {
			case errors.Is(err, store.ErrNotFound): // purged in the meantime
			case err != nil:
				errs = append(errs, fmt.Errorf("thread %s: %w", id, err))
			case op.Done:
				destroyed++
			}
			if ctx.Err() != nil {
				return destroyed, ctx.Err()
			}
		}
		if len(errs) > 0 || len(ids) < expiryBatch {
			return destroyed, errors.Join(errs...)
		}
	}
}

// removalAge is how long a removal of messages is left to the replica that has begun it.
const removalAge = 10 * time.Second

// FinishRemovals removes the messages of destroyed and truncated conversations whose removal was interrupted. It returns
// of how many conversations.
func (s *Service) FinishRemovals(ctx context.Context) (finished int, err error) {
	return s.store.FinishRemovals(ctx, s.clock.Now().Add(-removalAge).UnixMicro(), 0)
}

// remnantsPage is how many remnants of conversations one query looks at.
const remnantsPage = 500

// SweepRemnants removes what conversations have left for forks that do not read it any more, page by page. It returns how many conversations
// had left something.
func (s *Service) SweepRemnants(ctx context.Context) (removed int, err error) {
	for last := int64(0); ; {
		next, n, failed := s.store.SweepRemnants(ctx, last, remnantsPage)
		removed, err = removed+n, errors.Join(err, failed)
		if last = next; last == 0 {
			return removed, err
		}
	}
}

// PurgeRetained removes everything that is stored of a retained thread of a namespace. It returns store.ErrNotFound
// when the namespace has no such thread, and store.ErrNotRetained when the thread has an object: delete that instead.
func (s *Service) PurgeRetained(ctx context.Context, namespace, namespaceUID, id string) error {
	t, err := s.store.Thread(ctx, id)
	if err != nil {
		return err
	}
	if t.Namespace != namespace || !t.Within(namespaceUID) {
		return fmt.Errorf("thread %s: %w", id, store.ErrNotFound)
	}
	// From here on nothing can adopt the thread. If the purge is interrupted, the thread is still listed and can be
	// purged again.
	if err := s.store.Apply(ctx, id, nil, &store.MarkForPurge{}); err != nil {
		return err
	}
	return s.Purge(ctx, id)
}

// PurgeOldRetained purges the data of threads that have had no object for longer than age, and finishes purges of such
// data that were interrupted. An age of 0 means that retained data is kept for ever. It returns how many it purged.
func (s *Service) PurgeOldRetained(ctx context.Context, age time.Duration) (purged int, err error) {
	before := int64(0)
	if age > 0 {
		before = s.clock.Now().Add(-age).UnixMicro()
	}
	for {
		old, err := s.store.RetainedBefore(ctx, before, retainedBatch)
		if err != nil {
			return purged, err
		}
		for i := range old {
			err := s.PurgeRetained(ctx, old[i].Namespace, old[i].NamespaceUID, old[i].ID)
			switch {
			case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrNotRetained): // purged or adopted in the meantime
			case err != nil:
				return purged, fmt.Errorf("thread %s: %w", old[i].ID, err)
			default:
				purged++
			}
		}
		if len(old) < retainedBatch {
			return purged, nil
		}
	}
}

// retainedBatch is how many threads one query for old retained data returns.
const retainedBatch = 100
