// Package causation counts the hooks that led to a call of code, so that hooks which cause each other come to an end.
package causation

import (
	"context"
	"fmt"
	"time"
)

// Chain describes what led to a call of code.
type Chain struct {
	// Depth is the number of hooks, each caused by the one before, that led to the call, including those of earlier
	// runs.
	Depth int
	// Nested is the number of these hooks that are being called right now, one within the other.
	Nested int
}

type causationKey struct{}

// FromContext returns what led to the call whose code runs in ctx.
func FromContext(ctx context.Context) Chain {
	t, _ := ctx.Value(causationKey{}).(Chain)
	return t
}

// NewContext returns a context for code that t led to.
func NewContext(ctx context.Context, t Chain) context.Context {
	return context.WithValue(ctx, causationKey{}, t)
}

// NestedContext returns the context of a hook that is called in ctx.
func NestedContext(ctx context.Context) context.Context {
	t := FromContext(ctx)
	return NewContext(ctx, Chain{Depth: t.Depth + 1, Nested: t.Nested + 1})
}

// TooDeep returns the text for a hook that is not called because too many hooks led to it.
func TooDeep(limit int) string {
	return fmt.Sprintf("not called: a chain of %d hooks, each caused by the one before, ends here: change the hook so that it does not cause the event that calls it", limit)
}

// anewAfter is the shortest delay after which an effect starts a new chain of causation. Hooks that cause each other
// once a minute do not exhaust anything, and may be intended.
const anewAfter = time.Minute

// DepthOfEffect returns the hook depth of an effect that is scheduled with a delay by code with causation t. It is 0 if the delay is so long
// (anewAfter) that the effect begins a new chain.
func DepthOfEffect(t Chain, delay time.Duration) int {
	if delay >= anewAfter {
		return 0
	}
	return t.Depth
}

// EffectTooDeep returns the text for an effect that is not scheduled because too many hooks led to it.
func EffectTooDeep(limit int) string {
	return fmt.Sprintf("not scheduled: a chain of %d hooks, each caused by the one before, ends here: change the hook so that it does not cause the event that calls it; to repeat work, use a delay of %s or more", limit, anewAfter)
}
