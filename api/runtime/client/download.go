package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// ReadFile implements FileState. When a transfer is cut off, as the Kubernetes API does after a minute, reading
// continues where it stopped. If the file has changed meanwhile, reading returns ErrConflict.
func (t *Thread) ReadFile(ctx context.Context, path string) (io.ReadCloser, error) {
	f := &fileReader{ctx: ctx, t: t, path: path}
	err := f.open()
	if apierrors.IsNotFound(err) {
		return nil, t.absentBelow(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// fileReader reads a file with as many requests as necessary.
type fileReader struct {
	ctx  context.Context
	t    *Thread
	path string

	body     io.ReadCloser
	tag      string // the entity tag of the content
	at, size int64
	stuck    int // requests since the last byte arrived
}

// maxStuck bounds consecutive requests that bring no bytes.
const maxStuck = 3

// open sends a request for the file, from the current position.
func (f *fileReader) open() error {
	header := http.Header{}
	if f.tag != "" {
		header.Set("Range", fmt.Sprintf("bytes=%d-", f.at))
		header.Set("If-Match", f.tag)
	}
	resp, err := f.t.download(f.ctx, f.path, nil, header)
	if err != nil {
		return err
	}
	switch {
	case f.tag == "":
		f.tag, f.size = resp.Header.Get("ETag"), resp.ContentLength
	case resp.StatusCode != http.StatusPartialContent:
		_ = resp.Body.Close()
		return fmt.Errorf("%s: the server answers %s when asked for the rest: %w", f.path, resp.Status, ErrUnavailable)
	}
	f.body = resp.Body
	return nil
}

// Read implements io.Reader.
func (f *fileReader) Read(p []byte) (int, error) {
	for {
		if f.body == nil {
			if err := f.open(); err != nil {
				if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code == http.StatusPreconditionFailed {
					return 0, fmt.Errorf("%s has changed while it was read: %w", f.path, ErrConflict)
				}
				return 0, err
			}
		}
		n, err := f.body.Read(p)
		f.at += int64(n)
		if n > 0 {
			f.stuck = 0
			return n, nil
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && (f.at == f.size || f.size < 0):
			return 0, io.EOF
		case f.ctx.Err() != nil:
			return 0, f.ctx.Err()
		case f.tag == "":
			return 0, explain(err)
		}
		_ = f.body.Close()
		f.body = nil
		if f.stuck++; f.stuck > maxStuck {
			return 0, fmt.Errorf("%s was cut off at byte %d of %d: %w", f.path, f.at, f.size, errors.Join(err, ErrUnavailable))
		}
	}
}

// Close implements io.Closer.
func (f *fileReader) Close() error {
	if f.body == nil {
		return nil
	}
	return f.body.Close()
}

// download sends a GET below the thread's files. An unsuccessful answer is an error.
func (t *Thread) download(ctx context.Context, path string, params map[string]string, header http.Header) (*http.Response, error) {
	r, err := t.request(http.MethodGet, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	for k, v := range params {
		r.Param(k, v)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL().String(), nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Accept", "*/*")
	// Disable compression, because sizes and ranges are those of the file.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := t.client.http().Do(req)
	if err != nil {
		return nil, explain(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, explain(statusOf(resp))
}

// http returns the underlying HTTP client, with its credentials.
func (c *Client) http() *http.Client {
	if r, ok := c.rest.(*rest.RESTClient); ok && r.Client != nil {
		return r.Client
	}
	return http.DefaultClient
}

// statusOf returns the Status in an answer as an error.
func statusOf(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, runtimev1.MaxBodyBytes))
	var s metav1.Status
	if json.Unmarshal(body, &s) == nil && s.Kind == "Status" {
		return statusError(s)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, resp.Request.Method, schemaThreads, "", string(body), 0, true)
}

func statusError(s metav1.Status) error { return &apierrors.StatusError{ErrStatus: s} }
