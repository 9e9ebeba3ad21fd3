package thread

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// resealPage is how many values one transaction puts under another key.
const resealPage = 200

// ResealEnv puts every value that is sealed under an old key under the primary one, page by page: it may be cut
// off at any point and begun again. left is how many values cannot be, because their key is gone; err then says
// which key.
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

// WakeEnvWaiters lets all threads of a namespace, of all when it is empty, that wait for variables look again (ENV-06), since a
// source outside of the threads has changed.
func (s *Service) WakeEnvWaiters(ctx context.Context, namespace string) error {
	after := ""
	for {
		ids, err := s.store.EnvWaiting(ctx, namespace, after, resealPage)
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := s.store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		if len(ids) < resealPage {
			return nil
		}
		after = ids[len(ids)-1]
	}
}
