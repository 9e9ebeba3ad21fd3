package store

import (
	"context"
	"time"
)

// PermitStore shares the calls of a rate-limited model among all replicas (AGT-06).
type PermitStore interface {
	// TakePermit asks for the permit to make one call. Permits are granted in the order of asking. A request that is
	// not granted keeps its place in the queue as long as it asks again, with the same id, before TTL is over.
	TakePermit(ctx context.Context, r PermitRequest) (PermitAnswer, error)
	// RenewPermit extends a permit by ttl. It returns ErrNotFound when the permit has expired.
	RenewPermit(ctx context.Context, namespace, model, id string, ttl time.Duration) error
	// ReturnPermit returns a permit, or gives up a place in the queue, and counts the tokens that the call used.
	// Repeating it is no error, but counts the tokens again.
	ReturnPermit(ctx context.Context, namespace, model, id string, tokens int64) error
}

// PermitRequest asks for a permit. A limit of 0 means none.
type PermitRequest struct {
	Namespace, Model string
	ID               string // unique to the call
	Concurrent       int64  // calls under way at once
	Requests         int64  // calls a minute
	Tokens           int64  // tokens a minute; no call begins once more than these were used
	// TTL is how long a permit lasts when its holder is lost.
	TTL time.Duration
}

// PermitAnswer is the answer to a PermitRequest.
type PermitAnswer struct {
	Granted bool
	// Wait is the least time until a permit can be granted. It is 0 when the permit was granted or the time is unknown.
	Wait time.Duration
}
