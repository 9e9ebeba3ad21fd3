package telemetry_test

import (
	"context"
	"reflect"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/telemetry"
)

// TestLogLinesHaveTheSameKeys covers K8S-06.
func TestLogLinesHaveTheSameKeys(t *testing.T) {
	install(t, nil)
	same := func(got []any, want ...any) {
		t.Helper()
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("the values are %v, not %v", got, want)
		}
	}
	same(telemetry.OfThread("ns", "orders", "t"), "namespace", "ns", "name", "orders", "thread", "t")
	same(telemetry.OfThread("", "", "t"), "thread", "t")
	same(telemetry.OfThread("ns", "orders", ""), "namespace", "ns", "name", "orders")

	same(telemetry.OfWork(context.Background()))
	ctx := telemetry.WithRequestID(context.Background(), "r")
	same(telemetry.OfWork(ctx), "request_id", "r")
	ctx, span := sdktrace.NewTracerProvider().Tracer("x").Start(ctx, "x")
	defer span.End()
	id := trace.SpanContextFromContext(ctx).TraceID().String()
	same(telemetry.OfWork(ctx), "trace_id", id, "request_id", "r")
	same(telemetry.BeginRun(telemetry.OriginOf(ctx)).LogValues(), "trace_id", id, "request_id", "r")
}
