package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// OfThread returns keys and values for log lines about a Thread, as far as they are known: its namespace, its name and its id.
func OfThread(namespace, name, id string) []any {
	return known("namespace", namespace, "name", name, "thread", id)
}

// OfWork returns keys and values for log lines about what is done under a context: the trace and the request that it belongs to.
func OfWork(ctx context.Context) []any {
	traceID := ""
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		traceID = sc.TraceID().String()
	}
	return OfRequest(traceID, RequestID(ctx))
}

// LogValues returns keys and values for the log lines of the run.
func (r Run) LogValues() []any { return OfRequest(r.TraceID(), r.RequestID) }

// OfRequest returns keys and values for log lines about a request, or what it caused: the id of its trace, and its own.
func OfRequest(traceID, requestID string) []any {
	return known("trace_id", traceID, "request_id", requestID)
}

// known returns those of some pairs of keys and values whose value is not "".
func known(pairs ...string) (values []any) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values = append(values, pairs[i], pairs[i+1])
		}
	}
	return values
}
