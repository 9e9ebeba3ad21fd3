package ports

import "context"

type waitsKey struct{}

// WithWaits returns a context for requests for a sandbox. While such a request waits, told is called with the error that it would fail with,
// again when that changes, and with nil once there is a sandbox. told must not block.
func WithWaits(ctx context.Context, told func(why error)) context.Context {
	return context.WithValue(ctx, waitsKey{}, told)
}

// TellWaits says what a request for a sandbox waits for; nil when it does not wait any more. It does nothing in a context that is not of WithWaits.
func TellWaits(ctx context.Context, why error) {
	if told, ok := ctx.Value(waitsKey{}).(func(error)); ok {
		told(why)
	}
}
