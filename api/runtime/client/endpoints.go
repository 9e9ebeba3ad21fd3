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
	// Method is the HTTP method. Empty means GET.
	Method string
	// Path is the path below the thread's endpoints, such as /report/7.
	Path   string
	Query  url.Values
	Header http.Header
	// Body is at most 8 MiB. GET and HEAD have none.
	Body io.Reader
}

// Endpoint sends a request to the code that the namespace's ThreadEndpoint objects serve for the thread. It returns
// the answer of the code, whatever its status; close its body. It returns a redirection without following it, because
// the target must not get the caller's credentials. Through the Kubernetes API a request lasts a minute at most.
//
// An error means that no code answered. It is ErrNotFound without the thread or without an endpoint of that path,
// ErrInvalid for a method that the path does not have, or ErrTerminated. When the code failed, the Status of the error
// has the cause EndpointFailed.
func (t *Thread) Endpoint(ctx context.Context, r EndpointRequest) (*http.Response, error) {
	method := strings.ToUpper(r.Method)
	if method == "" {
		method = http.MethodGet
	}
	var rest []string
	if path := strings.Trim(r.Path, "/"); path != "" {
		rest = strings.Split(path, "/")
	}
	at, err := t.request(http.MethodGet, runtimev1.SubresourceEndpoints, rest...) // built as GET, because the query belongs to the endpoint alone
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
