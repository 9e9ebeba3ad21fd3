package thread

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// keptKeys is how long a repeat with an idempotency key gets the first result (MSG-10).
	keptKeys = 7 * 24 * time.Hour
	// sweptKeys is how many keys one transaction removes, so that other writers need not wait long.
	sweptKeys = 1000
)

func answerKey(key string) string { return "answer:" + key }

// Answer returns the stored answer to a request with an idempotency key; nil when there is none. It fails with
// store.ErrKeyReused when the key belongs to another request.
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

// KeepAnswer stores the answer to a request under its key, and returns the answer to send: the first one stored.
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

// SweepKeys removes idempotency keys that are older than a week, and returns how many it removed.
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
