package related

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/skein-dev/skein/internal/store"
)

// The delay between two attempts to declare objects begins with firstRetry and doubles up to maxRetry.
const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// Run declares the objects of new threads that were stored and did not get one, until ctx ends: because a manager ended in between, or
// because the API server did not answer. A run repeats its calls by itself, but the caller of the API may not.
func (s *Service) Run(ctx context.Context) {
	for ctx.Err() == nil {
		delays := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: 100, Cap: maxRetry}
		for err := s.resume(ctx); err != nil && ctx.Err() == nil; err = s.resume(ctx) {
			after := delays.Step()
			s.opts.Log.Error(err, "Cannot make the Thread objects of context handoffs, and tries again", "after", after)
			timer := s.opts.Clock.NewTimer(after)
			select {
			case <-ctx.Done():
			case <-timer.C():
			}
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-s.undeclared:
		}
	}
}

// retry has Run look for threads that have no object.
func (s *Service) retry() {
	select {
	case s.undeclared <- struct{}{}:
	default: // it will look anyway
	}
}

// resume declares the objects of new threads that have none. One that cannot be declared keeps none of the others from their objects.
func (s *Service) resume(ctx context.Context) error {
	var failed error
	for after := ""; ; {
		page, err := s.store.Undeclared(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for i := range page {
			t := &page[i]
			if err := s.redeclare(ctx, t); err != nil && failed == nil {
				failed = fmt.Errorf("thread %s in namespace %s: %w", t.ID, t.Namespace, err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return failed
		}
		after = page[len(page)-1].ID
	}
}

// redeclare declares the object of a new thread that has none. A thread whose object the cluster refuses is removed, which is no error.
func (s *Service) redeclare(ctx context.Context, t *store.Thread) error {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	_, err := s.declare(ctx, t, "resumed "+t.ID)
	return err
}
