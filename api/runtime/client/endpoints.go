package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// EndpointRequest is a request to an endpoint of a thread (END-01).
type EndpointRequest struct {
	// Method: GET when empty.
	Method string
	// Path below the thread's endpoints, such as /report/7.
	Path   string
	Query  url.Values
	Header http.Header
	// Body, at most 8 MiB; none for GET and HEAD.
	Body io.Reader
}

// Endpoint makes a request to what the namespace's ThreadEndpoint objects serve for the thread, and gives the answer
// of their code, whatever its status; close its body. A redirection is given, not followed: it must not get the
// caller's credentials. An error means that no code answered: ErrNotFound without an endpoint of that path or without
// the thread, ErrInvalid for a method that the path does not have, ErrTerminated, and errors whose Status has the
// cause EndpointFailed when the code failed. Through the Kubernetes API a request lasts a minute at most.
func (t *Thread) Endpoint(ctx context.Context, r EndpointRequest) (*http.Response, error) {
	method := strings.ToUpper(r.Method)
	if method == "" {
		method = http.MethodGet
	}
	var rest []string
	if path := strings.Trim(r.Path, "/"); path != "" {
		rest = strings.Split(path, "/")
	}
	at, err := t.request(http.MethodGet, runtimev1.SubresourceEndpoints, rest...) // as GET: the query is the endpoint's alone
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	u := at.URL()
	u.RawQuery = r.Query.Encode()
	body := r.Body
	if method == http.MethodGet || method == http.MethodHead {
		body = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "*/*")
	}
	if method != http.MethodGet && method != http.MethodHead {
		for _, h := range t.headers {
			req.Header.Set(h[0], h[1])
		}
	}
	plain := *t.client.http()
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := plain.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	if resp.Header.Get(runtimev1.HeaderEndpoint) != "" || resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, explain(statusOf(resp))
}
