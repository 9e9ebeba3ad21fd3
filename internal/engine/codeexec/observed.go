package codeexec

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/telemetry"
)

// observe begins the span of work in the sandbox, with the time until there is one. done ends it.
func (c *Host) observe(ctx context.Context, what string) (_ context.Context, done func(err error)) {
	if !telemetry.Enabled() {
		return ctx, func(error) {}
	}
	ctx, span := telemetry.StartWithin(ctx, "sandbox "+what, trace.SpanKindClient, c.thread.Namespace,
		attribute.String("skein.namespace", c.thread.Namespace), attribute.String("skein.thread.name", c.thread.Name),
		attribute.String("skein.sandbox.pool", c.pool), attribute.String("skein.sandbox.code", what))
	return ctx, func(err error) {
		defer span.End()
		if err == nil {
			return
		}
		kind := "code_error"
		var gone *sandbox.IsolateGoneError
		switch {
		case errors.Is(err, ErrNoSandbox):
			kind = "no_sandbox"
		case errors.Is(err, ErrTimeout):
			kind = "timeout"
		case errors.As(err, &gone):
			kind = string(gone.Status)
		case ctx.Err() != nil:
			kind = "cancelled"
		}
		span.Fail(kind, err.Error())
	}
}
