package thread

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// resealPage is how many values one transaction reseals.
const resealPage = 200

// ResealEnv reseals every value that is sealed under an old key with the primary key, page by page. It may be
// interrupted at any point and started again. left is the number of values that cannot be resealed because their key is
// gone; err then names the key.
func (s *Service) ResealEnv(ctx context.Context) (done, left int, err error) {
	if s.env.Cipher == nil {
		return 0, 0, nil
	}
	primary, err := s.env.Cipher.Primary()
	if err != nil {
		return 0, 0, err
	}
	var after *store.SealedEnv
	var lost error
	for {
		page, err := s.store.EnvNotUnder(ctx, primary, after, resealPage)
		if err != nil {
			return done, left, err
		}
		var values []store.ResealedEnv
		for i := range page {
			v := &page[i]
			out, keyID, err := s.env.Cipher.Reseal(v.Value)
			if err != nil {
				left++
				lost = fmt.Errorf("variable %s of thread %s: %w", v.Name, v.ThreadID, err)
				continue
			}
			values = append(values, store.ResealedEnv{ThreadID: v.ThreadID, Name: v.Name, Old: v.Value, New: out, KeyID: keyID})
		}
		if len(values) > 0 {
			if err := s.store.ResealEnv(ctx, values); err != nil {
				return done, left, err
			}
			done += len(values)
		}
		if len(page) < resealPage {
			return done, left, lost
		}
		after = &page[len(page)-1]
	}
}

// WakeEnvWaiters wakes all threads of a namespace that wait for variables, so that they check again (ENV-06). Call it
// when a source outside of the threads has changed. An empty namespace selects all.
func (s *Service) WakeEnvWaiters(ctx context.Context, namespace string) error {
	after := ""
	var failed []error
	for {
		ids, err := s.store.EnvWaiting(ctx, namespace, after, resealPage)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, id := range ids {
			err := s.store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true})
			if errors.Is(err, store.ErrUnavailable) {
				return errors.Join(append(failed, err)...) // the others would fail too
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				failed = append(failed, fmt.Errorf("thread %s: %w", id, err))
			}
		}
		if len(ids) < resealPage || ctx.Err() != nil {
			return errors.Join(failed...)
		}
		after = ids[len(ids)-1]
	}
}

// EnvWaiterNamespaces returns the namespaces of the threads whose run waits for variables, in the order of their names.
func (s *Service) EnvWaiterNamespaces(ctx context.Context) ([]string, error) {
	found, after := map[string]bool{}, ""
	for {
		ids, err := s.store.EnvWaiting(ctx, "", after, resealPage)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			t, err := s.store.Thread(ctx, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found[t.Namespace] = true
		}
		if len(ids) < resealPage {
			return slices.Sorted(maps.Keys(found)), nil
		}
		after = ids[len(ids)-1]
	}
}
