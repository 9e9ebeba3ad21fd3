package otlp

import (
	"crypto/rand"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

func randomTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return id
}

func randomSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return id
}

// tracesURL returns the URL for traces of an endpoint for all signals, as OTEL_EXPORTER_OTLP_ENDPOINT means it.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || strings.HasSuffix(u.Path, "/v1/traces") {
		return endpoint
	}
	return u.JoinPath("v1", "traces").String()
}
