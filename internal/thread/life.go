package thread

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Continue lets go on what waits since a user's stop (MSG-08); was tells whether anything was parked.
// store.ErrTerminated when the thread is terminated.
func (st *State) Continue(ctx context.Context) (was bool, err error) {
	op := &store.Continue{}
	err = st.Apply(ctx, op)
	return op.Was, err
}

// expiryBatch is how many threads one look for expired ones takes.
const expiryBatch = 500

// Expire destroys the conversations whose idle expiry has passed (THR-07), and gives how many. Several
// replicas may do so at once: the store decides on each thread in the transaction that clears it.
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
			case errors.Is(err, store.ErrNotFound): // purged meanwhile
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

// Retained lists the threads of a namespace that have no object (THR-09), by id, those after an id.
func (s *Service) Retained(ctx context.Context, namespace, after string, limit int) ([]store.Thread, error) {
	if limit < 0 || limit > maxPage {
		return nil, invalid("limit", "give a number from 1 to %d, or leave it out for 100", maxPage)
	}
	return s.store.Retained(ctx, namespace, after, limit)
}

// PurgeRetained removes all that is stored of a retained thread of a namespace. store.ErrNotFound when the
// namespace has none of that id, store.ErrNotRetained when it has an object: delete that instead.
func (s *Service) PurgeRetained(ctx context.Context, namespace, id string) error {
	t, err := s.store.Thread(ctx, id)
	if err != nil {
		return err
	}
	if t.Namespace != namespace {
		return fmt.Errorf("thread %s: %w", id, store.ErrNotFound)
	}
	// From now on nobody can adopt it; cut off here, it is still listed, to be purged again.
	if err := s.store.Apply(ctx, id, nil, &store.Condemn{}); err != nil {
		return err
	}
	return s.Purge(ctx, id)
}
