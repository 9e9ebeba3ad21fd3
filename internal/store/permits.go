package store

import (
	"context"
	"time"
)

// PermitStore shares the calls of a model out over all replicas, where there is a limit (AGT-06).
type PermitStore interface {
	// TakePermit asks for the permit to make one call. Who asks first is the first to get it: one that is not granted
	// has its place in the line as long as it asks again, by the same id, before TTL is over.
	TakePermit(ctx context.Context, r PermitRequest) (PermitAnswer, error)
	// RenewPermit keeps a permit for another term; ErrNotFound when it has run out.
	RenewPermit(ctx context.Context, namespace, model, id string, ttl time.Duration) error
	// ReturnPermit gives a permit back, or a place in the line, and counts the tokens that the call has used. Again is
	// no error, but counts again.
	ReturnPermit(ctx context.Context, namespace, model, id string, tokens int64) error
}

// PermitRequest asks for a permit. Of the bounds, 0 is none.
type PermitRequest struct {
	Namespace, Model string
	ID               string // of the call, never used before
	Concurrent       int64  // calls under way at once
	Requests         int64  // calls a minute
	Tokens           int64  // tokens a minute: no call begins while more than these were used
	// TTL is when a permit comes back whose holder was lost.
	TTL time.Duration
}

// PermitAnswer to a request.
type PermitAnswer struct {
	Granted bool
	// Wait, where it was not, is how long it takes at least; 0 when that is not known.
	Wait time.Duration
}
