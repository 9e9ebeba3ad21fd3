package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

var schemaThreads = schema.GroupResource{Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource}

const (
	// partBytes is the size of one part where the duration of requests is limited.
	partBytes = 16 << 20
	// partAttempts is how often a part is sent before the upload fails.
	partAttempts = 3
)

// WriteFileOptions are the options of WriteFile.
type WriteFileOptions struct {
	MimeType string         // empty means guessed from the name
	Metadata map[string]any // nil means none
}

// WriteFile implements FileState. Directly to the manager, a file is one stream. The Kubernetes API ends requests
// after a minute, so through it more than 16 MiB are sent in parts. A part that was cut off is sent again.
func (t *Thread) WriteFile(ctx context.Context, path string, content io.Reader, o WriteFileOptions) (*runtimev1.FileRecord, error) {
	if t.client.direct {
		return t.put(ctx, path, struct{ io.Reader }{content}, nil, o)
	}
	first := &bytes.Buffer{}
	switch _, err := io.CopyN(first, content, partBytes); {
	case errors.Is(err, io.EOF):
		return t.put(ctx, path, first.Bytes(), nil, o)
	case err != nil:
		return nil, err
	}
	u := &upload{t: t, path: path, id: uuid.NewString()}
	rec, err := u.run(ctx, first, content, o)
	if err != nil {
		u.abort(ctx)
	}
	return rec, err
}

// put sends a body to a path. The body is bytes, or a reader that cannot be sent twice.
func (t *Thread) put(ctx context.Context, path string, body any, params map[string]string, o WriteFileOptions) (*runtimev1.FileRecord, error) {
	r, err := t.putRequest(path, params, o)
	if err != nil {
		return nil, err
	}
	return getAs[runtimev1.FileRecord](ctx, r.Body(body).MaxRetries(0))
}

func (t *Thread) putRequest(path string, params map[string]string, o WriteFileOptions) (*rest.Request, error) {
	r, err := t.request(http.MethodPut, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	for k, v := range params {
		r.Param(k, v)
	}
	r.SetHeader("Content-Type", o.MimeType) // without one the server guesses it from the name
	if o.Metadata != nil {
		meta, err := json.Marshal(o.Metadata)
		if err != nil {
			return nil, err
		}
		r.SetHeader(runtimev1.HeaderFileMetadata, string(meta))
	}
	return r, nil
}

// upload is a file that is sent in parts.
type upload struct {
	t        *Thread
	path, id string
}

func (u *upload) run(ctx context.Context, part *bytes.Buffer, rest io.Reader, o WriteFileOptions) (*runtimev1.FileRecord, error) {
	parts := 0
	for part.Len() > 0 {
		if err := u.send(ctx, parts, part.Bytes()); err != nil {
			return nil, err
		}
		parts++
		part.Reset()
		if _, err := io.CopyN(part, rest, partBytes); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return u.t.put(ctx, u.path, []byte(nil), map[string]string{"upload": u.id, "parts": strconv.Itoa(parts)}, o)
}

// send sends a part, and retries a few times when the connection fails.
func (u *upload) send(ctx context.Context, n int, data []byte) error {
	for attempt := 1; ; attempt++ {
		var part runtimev1.FilePart
		r, err := u.t.putRequest(u.path, map[string]string{"upload": u.id, "part": strconv.Itoa(n)}, WriteFileOptions{MimeType: "application/octet-stream"})
		if err != nil {
			return err
		}
		err = get(ctx, r.Body(data).MaxRetries(0), &part)
		if err == nil || ctx.Err() != nil || attempt == partAttempts || !errors.Is(err, ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt) * time.Second):
		}
	}
}

// abort removes the parts that were sent. If that fails, the server sweeps them later.
func (u *upload) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r, err := u.t.request(http.MethodDelete, runtimev1.SubresourceFiles, u.path)
	if err == nil {
		_ = get(ctx, r.Param("upload", u.id).MaxRetries(0), nil)
	}
}
