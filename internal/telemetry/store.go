package telemetry

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
)

// Store wraps a store and adds to every inbox item the origin of its context.
type Store struct{ store.Store }

// NewStore wraps a store.
func NewStore(inner store.Store) *Store { return &Store{inner} }

// Unwrap returns the wrapped store.
func (s *Store) Unwrap() store.Store { return s.Store }

// CreateThread implements store.Store.
func (s *Store) CreateThread(ctx context.Context, t store.Thread, ops ...store.Op) (*store.Thread, bool, error) {
	addOrigins(ctx, ops)
	return s.Store.CreateThread(ctx, t, ops...)
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	addOrigins(ctx, ops)
	return s.Store.Apply(ctx, threadID, fence, ops...)
}

// addOrigins puts into the payload of each item that ops enqueue where the item comes from: the Origin of the operation, or else that of
// ctx.
func addOrigins(ctx context.Context, ops []store.Op) {
	var o Origin
	asked := false
	for _, op := range ops {
		enqueue, ok := op.(*store.Enqueue)
		if !ok {
			continue
		}
		if len(enqueue.Origin) > 0 {
			var own Origin
			if json.Unmarshal(enqueue.Origin, &own) == nil {
				enqueue.Item.Payload = own.AddTo(enqueue.Item.Payload)
			}
			continue
		}
		if !asked {
			o, asked = OriginOf(ctx), true
		}
		enqueue.Item.Payload = o.AddTo(enqueue.Item.Payload)
	}
}
