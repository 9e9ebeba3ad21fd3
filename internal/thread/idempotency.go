package thread

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// keptKeys is how long a repeat under an idempotency key gets the first result (MSG-10).
	keptKeys = 7 * 24 * time.Hour
	// sweptKeys is how many keys one transaction forgets, so that others need not wait.
	sweptKeys = 1000
)

func answerKey(key string) string { return "answer:" + key }

// Answer gives what was kept as the answer to a request under an idempotency key; nil when there is none. One
// to another request is store.ErrKeyReused.
func (st *State) Answer(ctx context.Context, key string, fingerprint func() string) (json.RawMessage, error) {
	if err := CheckIdempotencyKey(key); err != nil {
		return nil, err
	}
	was, answer, err := st.svc.store.Recorded(ctx, st.id, answerKey(key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case was != fingerprint():
		return nil, store.ErrKeyReused
	}
	return answer, nil
}

// KeepAnswer keeps the answer to a request under its key, and gives the one to give: that of whoever was first.
func (st *State) KeepAnswer(ctx context.Context, key, fingerprint string, answer json.RawMessage) (json.RawMessage, error) {
	once := &store.Once{Key: answerKey(key), Fingerprint: fingerprint, Result: func() (json.RawMessage, error) { return answer, nil }}
	if err := st.svc.store.Apply(ctx, st.id, nil, once); err != nil {
		return nil, err
	}
	if once.Existed {
		return once.Recorded, nil
	}
	return answer, nil
}

// SweepKeys forgets the idempotency keys that are older than a week, and tells how many there were.
func (s *Service) SweepKeys(ctx context.Context) (removed int64, err error) {
	before := s.clock.Now().Add(-keptKeys).UnixMicro()
	for {
		n, err := s.store.SweepKeys(ctx, before, sweptKeys)
		removed += n
		if err != nil || n < sweptKeys {
			return removed, err
		}
	}
}
