package model

import (
	"context"
	"errors"
)

// ErrLater is the error of a call that was turned away, since many wait for their turn already: nothing was asked. See
// MayComeLater.
var ErrLater = errors.New("many wait for the model: it will be asked when its turn comes")

// Later says who is told when there is room again for a call that was turned away.
type Later struct {
	// Key of who asks: it has one place among those who were turned away.
	Key string
	// Again is called once when there is room. It must not block. As a rule: where whoever is called in does not come, the
	// next may be forgotten, so that those who wait have to look from time to time.
	Again func()
	// Full is set when the call is turned away: it tells whether there is still no room.
	Full func() bool
}

type laterKey struct{}

// MayComeLater lets a call be turned away with ErrLater, where it would have to wait behind many others, so that whoever
// makes it need not be kept waiting.
func MayComeLater(ctx context.Context, l *Later) context.Context {
	return context.WithValue(ctx, laterKey{}, l)
}

// LaterOf tells whether a call may be turned away; nil when it waits for its turn.
func LaterOf(ctx context.Context) *Later {
	l, _ := ctx.Value(laterKey{}).(*Later)
	return l
}

// InTurn has calls wait for their turn: something was asked already of what they are a part of.
func InTurn(ctx context.Context) context.Context {
	if LaterOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, laterKey{}, (*Later)(nil))
}
