package harness

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Span is a span as a collector has received it.
type Span struct {
	Trace, ID, Parent string // hexadecimal
	Name              string
	Attributes        map[string]string
	Failed            bool
	Took              uint64 // nanoseconds
}

// Collector receives spans by OTLP over HTTP.
type Collector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []Span
	all   strings.Builder
}

// NewCollector starts a collector on the loopback interface.
func NewCollector() *Collector {
	c := &Collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(c.receive))
	return c
}

func (c *Collector) receive(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	var req collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &req)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.WriteString(protojson.Format(&req))
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
					Attributes: map[string]string{}, Failed: s.Status.GetCode() == 2, Took: s.EndTimeUnixNano - s.StartTimeUnixNano,
				}
				for _, a := range s.Attributes {
					span.Attributes[a.Key] = valueText(a.Value)
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func valueText(v *commonv1.AnyValue) string {
	if s, ok := v.GetValue().(*commonv1.AnyValue_StringValue); ok {
		return s.StringValue
	}
	return protojson.Format(v)
}

// Spans returns the spans of a trace; all with "".
func (c *Collector) Spans(trace string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var spans []Span
	for _, s := range c.spans {
		if trace == "" || s.Trace == trace {
			spans = append(spans, s)
		}
	}
	return spans
}

// Text returns everything that was received, as text.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}
