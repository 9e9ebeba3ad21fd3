// Package otlp exports spans by the OpenTelemetry protocol.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-dev/skein/internal/telemetry"
)

// Options are the options of the export.
type Options struct {
	// Endpoint is the URL of the collector, such as http://collector:4318. Empty means OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
	// OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint string
	// Instance names this replica.
	Instance string
	// Redact removes the secrets of a namespace from content. With nil, spans have no content.
	Redact func(namespace, text string) string
	// Log receives errors of the export.
	Log logr.Logger
}

// protocols of OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// Configured reports whether there is an endpoint, and an error when the environment asks for something that does not exist.
func Configured(endpoint string) (bool, error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch p := protocol(); p {
	case protocolHTTP, protocolGRPC:
	default:
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: set it to %s or %s", p, protocolHTTP, protocolGRPC)
	}
	return endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "", nil
}

func protocol() string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := os.Getenv(name); p != "" {
			return p
		}
	}
	return protocolHTTP
}

// Start installs a provider that exports spans. stop exports what is left, and ends the traces.
func Start(ctx context.Context, o Options) (stop func() error, err error) {
	exporter, err := newExporter(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, so that they count.
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("skein"), semconv.ServiceInstanceID(o.Instance)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Info("Spans could not be exported: those of this batch are lost", "error", err.Error())
	}))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res), sdktrace.WithIDGenerator(IDs))
	telemetry.Install(&telemetry.Provider{Tracer: provider.Tracer(telemetry.Scope), Redact: o.Redact})
	return func() error {
		telemetry.Install(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			o.Log.Info("The last spans could not be exported", "error", err.Error())
		}
		return nil
	}, nil
}

// shutdownTime bounds the export of the last spans.
const shutdownTime = 5 * time.Second

func newExporter(ctx context.Context, o Options) (sdktrace.SpanExporter, error) {
	if protocol() == protocolGRPC {
		var options []otlptracegrpc.Option
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	}
	var options []otlptracehttp.Option
	if o.Endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(tracesURL(o.Endpoint)))
	}
	return otlptracehttp.New(ctx, options...)
}

type ids struct{}

// IDs generates the ids of spans: random ones, or those that telemetry has chosen earlier.
var IDs sdktrace.IDGenerator = ids{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if sc, ok := telemetry.Chosen(ctx); ok {
		return sc.TraceID(), sc.SpanID()
	}
	return randomTraceID(), randomSpanID()
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if sc, ok := telemetry.Chosen(ctx); ok {
		return sc.SpanID()
	}
	return randomSpanID()
}
