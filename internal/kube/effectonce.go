package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// onceKey is the idempotency key under which the store has the id of an effect that a call scheduled. The name of the object derives from the
// cause of the call.
func onceKey(s *skeinv1.ScheduledEffect) string { return "effect:" + s.Name }

// scheduledBefore returns the id of the effect that an earlier attempt of the same call scheduled, within the last week at least, or
// store.ErrNotFound. Its object may have expired, or may have been removed. A restore gives it another id.
func (e *Effects) scheduledBefore(ctx context.Context, thread *store.Thread, want *skeinv1.ScheduledEffect) (string, error) {
	_, data, err := e.store.Recorded(ctx, thread.ID, onceKey(want))
	if err != nil {
		return "", fmt.Errorf("look for an earlier attempt: %w", err)
	}
	if id, err := e.findExisting(ctx, want); err == nil {
		return id, nil
	}
	var id string
	if err := json.Unmarshal(data, &id); err != nil {
		return "", fmt.Errorf("read the id of an effect that was scheduled before: %w", err)
	}
	return id, nil
}

// remember records the id of an effect, so that a repeat of the call schedules nothing new when its object is gone. Until then a
// repeat finds the object. A thread that was purged meanwhile has taken the effect with it.
func (e *Effects) remember(ctx context.Context, thread *store.Thread, s *skeinv1.ScheduledEffect, id string) error {
	once := &store.Once{Key: onceKey(s), Result: func() (json.RawMessage, error) { return json.Marshal(id) }}
	if err := e.store.Apply(ctx, thread.ID, nil, once); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("record that ScheduledEffect %q was created: %w", s.Name, err)
	}
	return nil
}
