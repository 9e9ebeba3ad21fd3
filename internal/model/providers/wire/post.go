package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// userAgent is what clients call themselves, unless the Model's own headers say something else.
const userAgent = "skein"

// maxRefusal limits how much of the body of a refusal is read. A longer one is not of the protocol, and what it says is not looked for:
// it may end within a key.
const maxRefusal = 1 << 20

// Post sends body as JSON to a path below the endpoint's URL. header has what the protocol wants, such as the key. The Model's own
// headers replace the others. It returns the response, whose body the caller closes, or why there is none.
func (e *Endpoint) Post(ctx context.Context, path string, header http.Header, body any) (*http.Response, *Failure) {
	req, err := e.request(ctx, path, header, body)
	if err != nil {
		return nil, &Failure{Err: err}
	}
	res, err := e.HTTP.Do(req)
	switch {
	case ctx.Err() != nil: // how far the call came does not matter
		if res != nil {
			_ = res.Body.Close()
		}
		return nil, &Failure{Err: ctx.Err()}
	case err != nil: // with the response of a redirect that is not followed, whose body is closed
		return nil, &Failure{Err: err, Response: res}
	case res.StatusCode < http.StatusBadRequest:
		return res, nil
	}
	return nil, refusal(res)
}

// request returns a request to a path below the endpoint's URL.
func (e *Endpoint) request(ctx context.Context, path string, header http.Header, body any) (*http.Request, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, err
	}
	to, err := url.Parse(e.URL)
	if err != nil {
		return nil, err
	}
	if to.Path != "" && !strings.HasSuffix(to.Path, "/") { // the path continues it, and does not replace its last part
		to.Path += "/"
	}
	if to, err = to.Parse(path); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), &text)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	for name, values := range header {
		req.Header[name] = values
	}
	for name, value := range e.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

// refusal reads and closes the body of a refusal. What was read stays in the response, for Explain.
func refusal(res *http.Response) *Failure {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal+1))
	_ = res.Body.Close()
	if err != nil {
		return &Failure{Err: err, Response: res}
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	f := &Failure{Response: res}
	if len(body) <= maxRefusal {
		f.Refusal = body
	}
	return f
}
