package model

import (
	"context"
	"errors"
)

// ErrLater is the error of a call that was turned away because many calls already wait. Nothing was sent. See
// MayComeLater.
var ErrLater = errors.New("many calls wait for the model: this one will be made when its turn comes")

// Later says whom to notify when there is room again for a call that was turned away.
type Later struct {
	// Key identifies the caller. It has one place among the callers that were turned away.
	Key string
	// Again is called once when there is room. It must not block. The call can be lost: when a notified caller does not
	// come, the next one may be forgotten, so waiting callers must also check from time to time.
	Again func()
	// Full is set when the call is turned away. It reports whether there is still no room.
	Full func() bool
}

type laterKey struct{}

// MayComeLater returns a context in which a call may be turned away with ErrLater when it would wait behind many
// others, so that the caller does not have to wait.
func MayComeLater(ctx context.Context, l *Later) context.Context {
	return context.WithValue(ctx, laterKey{}, l)
}

// LaterOf returns the Later of a call that may be turned away; nil when the call waits for its turn.
func LaterOf(ctx context.Context) *Later {
	l, _ := ctx.Value(laterKey{}).(*Later)
	return l
}

// InTurn returns a context in which calls wait for their turn, because the operation that they belong to has already
// sent a request.
func InTurn(ctx context.Context) context.Context {
	if LaterOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, laterKey{}, (*Later)(nil))
}
