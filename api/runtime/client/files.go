package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// FileOptions select files. Glob excludes Prefix and Recursive.
type FileOptions struct {
	Page
	Prefix    string // a folder; the root when empty
	Recursive bool
	Glob      string // *, ** and ?; without a leading slash it matches at any depth
}

// Files lists files and folders by path.
func (t *Thread) Files(ctx context.Context, o FileOptions) (*runtimev1.FileList, error) {
	p := o.params()
	if o.Prefix != "" {
		p["prefix"] = o.Prefix
	}
	if o.Recursive {
		p["recursive"] = "true"
	}
	if o.Glob != "" {
		p["glob"] = o.Glob
	}
	return one[runtimev1.FileList](func(out any) error { return t.getAt(ctx, out, p, runtimev1.SubresourceFiles) })
}

// ReadFile opens a file as a stream; nil, nil when there is none. Close it. Through the Kubernetes API a transfer
// ends after the API server's request timeout (a minute by default): read large files directly, or from an offset.
func (t *Thread) ReadFile(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := t.request(http.MethodGet, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	body, err := open(ctx, r.SetHeader("Accept", "*/*"))
	if apierrors.IsNotFound(err) {
		return nil, t.absentBelow(ctx, err)
	}
	return body, err
}

// WriteFileOptions of WriteFile.
type WriteFileOptions struct {
	MimeType string         // guessed from the name when empty
	Metadata map[string]any // nil for none
}

// WriteFile makes or replaces a file out of a stream. Through the Kubernetes API the same limit of time holds as
// for ReadFile.
func (t *Thread) WriteFile(ctx context.Context, path string, content io.Reader, o WriteFileOptions) (*runtimev1.FileRecord, error) {
	r, err := t.request(http.MethodPut, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	r.Body(struct{ io.Reader }{content}).MaxRetries(0) // a stream cannot be sent twice
	if o.MimeType != "" {
		r.SetHeader("Content-Type", o.MimeType)
	}
	if o.Metadata != nil {
		meta, err := json.Marshal(o.Metadata)
		if err != nil {
			return nil, err
		}
		r.SetHeader(runtimev1.HeaderFileMetadata, string(meta))
	}
	return one[runtimev1.FileRecord](func(out any) error { return get(ctx, r, out) })
}

// MakeDir makes a folder, with those above it; one that is there already is no error.
func (t *Thread) MakeDir(ctx context.Context, path string) (*runtimev1.FileRecord, error) {
	r, err := t.request(http.MethodPut, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	return one[runtimev1.FileRecord](func(out any) error { return get(ctx, r.Param("directory", "true"), out) })
}

// DeleteFile removes a file or an empty folder; IsNotFound when missing.
func (t *Thread) DeleteFile(ctx context.Context, path string) error {
	return t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceFiles, path)
}
