package telemetry

import (
	"bytes"
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Origin says where work comes from. It is stored with the work, so that the trace goes on in another process and in other threads.
type Origin struct {
	// Traceparent is the span that caused the work, in the form of W3C Trace Context; "" when it is not traced.
	Traceparent string `json:"traceparent,omitempty"`
	// RequestID is the id of the request to the runtime API that caused the work; "" when there was none.
	RequestID string `json:"requestId,omitempty"`
}

type requestKey struct{}

// WithRequestID returns a context of work that a request caused.
func WithRequestID(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID returns the id of the request that caused the work, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// OriginOf returns the origin of what is done under a context.
func OriginOf(ctx context.Context) Origin {
	o := Origin{RequestID: RequestID(ctx)}
	if Enabled() {
		o.Traceparent = traceparent(trace.SpanContextFromContext(ctx))
	}
	return o
}

// With returns a context of work with this origin.
func (o Origin) With(ctx context.Context) context.Context {
	ctx = WithRequestID(ctx, o.RequestID)
	if sc := parse(o.Traceparent); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// Encode returns the origin for store.Enqueue; nil when it says nothing.
func (o Origin) Encode() json.RawMessage {
	if o == (Origin{}) {
		return nil
	}
	data, _ := json.Marshal(o) // strings only: cannot fail
	return data
}

// originField is the field that AddTo adds to a stored object. Releases that do not know it ignore it.
const originField = "telemetry"

// AddTo adds the origin to an object of JSON. It returns what is no object, or has an origin, as it is.
func (o Origin) AddTo(object json.RawMessage) json.RawMessage {
	open := bytes.TrimSpace(object)
	if o == (Origin{}) || len(open) < 2 || open[0] != '{' || open[len(open)-1] != '}' || ReadOrigin(object) != (Origin{}) {
		return object
	}
	own, err := json.Marshal(o)
	if err != nil {
		return object
	}
	open = bytes.TrimSpace(open[:len(open)-1])
	out := make([]byte, 0, len(open)+len(own)+len(originField)+6)
	out = append(out, open...)
	if len(open) > 1 {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, originField...)
	out = append(out, `":`...)
	out = append(out, own...)
	return append(out, '}')
}

// ReadOrigin returns the origin that AddTo has added to an object; the zero Origin when it has none.
func ReadOrigin(object json.RawMessage) Origin {
	var with struct {
		Telemetry Origin `json:"telemetry"`
	}
	if !bytes.Contains(object, []byte(`"`+originField+`"`)) || json.Unmarshal(object, &with) != nil {
		return Origin{}
	}
	return with.Telemetry
}

// Extract returns the span of a traceparent header that a client sent, as the parent of what follows. A header that is malformed
// counts as none.
func Extract(ctx context.Context, header string) context.Context {
	if !Enabled() {
		return ctx
	}
	return Origin{Traceparent: header}.With(ctx)
}

func parse(header string) trace.SpanContext {
	if header == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": header}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

func traceparent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier["traceparent"]
}
