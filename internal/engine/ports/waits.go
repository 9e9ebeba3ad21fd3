package ports

import "context"

type waitsKey struct{}

// WithWaits returns a context for requests for a sandbox. While such a request waits, report is called with the error that it would fail with,
// again when that changes, and with nil once there is a sandbox. report must not block.
func WithWaits(ctx context.Context, report func(why error)) context.Context {
	return context.WithValue(ctx, waitsKey{}, report)
}

// ReportWait reports what a request for a sandbox waits for; nil when it does not wait any more. It does nothing in a context that is not of WithWaits.
func ReportWait(ctx context.Context, why error) {
	if report, ok := ctx.Value(waitsKey{}).(func(error)); ok {
		report(why)
	}
}
