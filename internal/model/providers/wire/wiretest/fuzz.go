package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/skein-dev/skein/internal/model"
)

// Body returns the body of a recorded answer, as a seed.
func Body(tb testing.TB, file string) []byte {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	_, body, _ := bytes.Cut(data, []byte("\n\n"))
	return body
}

// Stream answers every request with the same bytes, as a stream of events.
type Stream []byte

// RoundTrip implements http.RoundTripper.
func (s Stream) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(s)), ContentLength: -1,
	}, nil
}

// CheckStream makes a call and checks that it returns an answer that can be recorded and counted, or an error that says what is wrong
// without the key.
func CheckStream(t *testing.T, key string, call func(emit func(model.Delta)) (*model.Response, error)) {
	t.Helper()
	r, err := call(func(model.Delta) {})
	if err != nil {
		var e *model.Error
		switch {
		case r != nil:
			t.Fatalf("an answer beside the error %v", err)
		case !errors.As(err, &e) || e.Message == "":
			t.Fatalf("%#v does not say what is wrong", err)
		case strings.Contains(fmt.Sprintf("%v %+v", err, *e), key):
			t.Fatalf("the key is shown: %v", err)
		}
		return
	}
	if r == nil {
		t.Fatal("neither an answer nor an error")
	}
	if r.FinishReason == "" {
		t.Fatalf("an answer that has not ended: %+v", r)
	}
	if u := r.Usage; u != nil {
		for _, n := range []int64{u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens, u.Tokens()} {
			if n < 0 || n > 2*model.MaxReported {
				t.Fatalf("%d tokens: %+v", n, *u)
			}
		}
	}
	for _, c := range r.ToolCalls {
		if c.Name == "" {
			t.Fatalf("a call without a name: %+v", r)
		}
	}
	if len(r.ToolCalls) > 128 {
		t.Fatalf("%d calls", len(r.ToolCalls))
	}
	if _, err := json.Marshal(r.Metadata); err != nil {
		t.Fatalf("metadata that cannot be recorded: %v", err)
	}
}
