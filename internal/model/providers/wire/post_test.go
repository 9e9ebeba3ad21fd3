package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
)

// answerer answers every request, and keeps the last one.
type answerer struct {
	status int
	body   io.Reader
	got    *http.Request
	text   string
	closed bool
}

func (a *answerer) RoundTrip(req *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(req.Body)
	a.got, a.text = req, string(text)
	return &http.Response{StatusCode: a.status, Request: req, Header: http.Header{}, Body: a}, err
}

func (a *answerer) Read(p []byte) (int, error) { return a.body.Read(p) }

func (a *answerer) Close() error {
	a.closed = true
	return nil
}

func endpointOf(t *testing.T, url string, a *answerer, headers ...skeinv1.ModelHeader) *Endpoint {
	t.Helper()
	e, err := NewEndpoint(model.Config{Name: "m", Transport: a, Spec: skeinv1.ModelSpec{Model: "x", Endpoint: url, Headers: headers}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestPathsContinueTheEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://h":        "http://h/a/b",
		"http://h/":       "http://h/a/b",
		"http://h/v1":     "http://h/v1/a/b",
		"http://h/v1/":    "http://h/v1/a/b",
		"http://h:8/x/v1": "http://h:8/x/v1/a/b",
		"http://h/v1?":    "http://h/v1/a/b",
		"http://h/v1#x":   "http://h/v1/a/b",
		"http://h/x y/v1": "http://h/x%20y/v1/a/b",
	} {
		a := &answerer{status: 200, body: strings.NewReader("")}
		res, failure := endpointOf(t, endpoint, a).Post(context.Background(), "a/b", nil, 1)
		if failure != nil {
			t.Fatal(failure.Err)
		}
		_ = res.Body.Close()
		if got := a.got.URL.String(); got != want {
			t.Errorf("below %s, it is %s, not %s", endpoint, got, want)
		}
	}
}

func TestTheModelsHeadersReplaceTheOthers(t *testing.T) {
	a := &answerer{status: 200, body: strings.NewReader("")}
	e := endpointOf(t, "http://h", a, skeinv1.ModelHeader{Name: "authorization", Value: "Basic x"}, skeinv1.ModelHeader{Name: "accept", Value: "text/event-stream"})
	res, failure := e.Post(context.Background(), "p", http.Header{"Authorization": {"Bearer k"}, "X-Other": {"o"}}, map[string]string{"a": "<&>"})
	if failure != nil {
		t.Fatal(failure.Err)
	}
	_ = res.Body.Close()
	for name, want := range map[string]string{
		"Authorization": "Basic x", "Accept": "text/event-stream", "X-Other": "o", "Content-Type": "application/json", "User-Agent": userAgent,
	} {
		if got := a.got.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if a.text != `{"a":"<&>"}`+"\n" || a.got.Method != http.MethodPost {
		t.Errorf("it sends %s %q", a.got.Method, a.text)
	}
}

func TestRefusalsAreReadUpToALimit(t *testing.T) {
	for _, c := range []struct {
		body io.Reader
		want int
		err  bool
	}{
		{strings.NewReader("no"), 2, false},
		{bytes.NewReader(make([]byte, maxRefusal)), maxRefusal, false},
		{bytes.NewReader(make([]byte, 2*maxRefusal)), 0, false},
		{io.MultiReader(strings.NewReader("no"), broken{}), 0, true},
	} {
		a := &answerer{status: 500, body: c.body}
		res, f := endpointOf(t, "http://h", a).Post(context.Background(), "p", nil, 1)
		if res != nil {
			_ = res.Body.Close()
		}
		if res != nil || f == nil || f.Response == nil || f.Response.StatusCode != 500 {
			t.Fatalf("a refusal is %v, %+v", res, f)
		}
		if len(f.Refusal) != c.want || (f.Err != nil) != c.err || !a.closed {
			t.Errorf("it reads %d bytes of a refusal, not %d: %v; closed: %t", len(f.Refusal), c.want, f.Err, a.closed)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestCallsThatEndedHaveNoResponse(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := &answerer{status: 200, body: strings.NewReader("")}
	res, f := endpointOf(t, "http://h", a).Post(ctx, "p", nil, 1)
	if res != nil {
		_ = res.Body.Close()
	}
	if res != nil || f == nil || !errors.Is(f.Err, context.Canceled) || f.Response != nil {
		t.Errorf("it returns %v, %+v", res, f)
	}
	if a.got != nil && !a.closed {
		t.Error("the body stays open")
	}
}
