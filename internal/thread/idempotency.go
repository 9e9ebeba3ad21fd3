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
	// keptInboxKeys is how long a repeat of what is put into an inbox is recognised. It is longer than any manager is down
	// that then repeats a step.
	keptInboxKeys = 30 * 24 * time.Hour
	// keptDeltas is how long the pieces of an answer are kept after the answer itself is stored. A client that resumes its
	// stream later gets the whole message instead (EVT-03).
	keptDeltas = 15 * time.Minute
	// keptDeleted is how long a deleted Thread object is known. No replica's copy of it is older, and no request is held up for longer.
	keptDeleted = 24 * time.Hour
	// sweptKeys is how many rows one transaction removes, so that other writers need not wait long.
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

// Claim records what is sent under a key. It fails with store.ErrKeyReused when something else was sent under that key
// in the last seven days. A write that fails after its claim may be repeated unchanged.
func (st *State) Claim(ctx context.Context, key, digest string) error {
	return st.svc.store.Apply(ctx, st.id, nil, &store.Once{Key: "sent:" + key, Fingerprint: digest})
}

// SweepKeys removes idempotency keys that are older than a week, and returns how many it removed.
func (s *Service) SweepKeys(ctx context.Context) (removed int64, err error) {
	return s.sweepOld(ctx, keptKeys, s.store.SweepKeys)
}

// SweepInboxKeys removes the keys of inbox items that are older than 30 days and not waiting, and returns how many it
// removed.
func (s *Service) SweepInboxKeys(ctx context.Context) (removed int64, err error) {
	return s.sweepOld(ctx, keptInboxKeys, s.store.SweepInboxKeys)
}

// SweepDeltas removes the pieces of answers that are older than 15 minutes and whose message is stored. It returns how
// many it removed.
func (s *Service) SweepDeltas(ctx context.Context) (removed int64, err error) {
	return s.sweepOld(ctx, keptDeltas, s.store.SweepDeltas)
}

// SweepDeleted removes the marks of Thread objects that were deleted more than a day ago, and returns how many it removed.
func (s *Service) SweepDeleted(ctx context.Context) (removed int64, err error) {
	return s.sweepOld(ctx, keptDeleted, s.store.SweepDeleted)
}

func (s *Service) sweepOld(ctx context.Context, age time.Duration, sweep func(ctx context.Context, before int64, limit int) (int64, error)) (removed int64, err error) {
	before := s.clock.Now().Add(-age).UnixMicro()
	for {
		n, err := sweep(ctx, before, sweptKeys)
		removed += n
		if err != nil || n < sweptKeys {
			return removed, err
		}
	}
}
