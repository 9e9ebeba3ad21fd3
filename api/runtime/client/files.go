package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// FileState is the part of ThreadState about files (FIL-01). Paths are absolute and normalised by the server;
// "..", NUL and over-long ones are ErrInvalid (FIL-04).
type FileState interface {
	// WriteFile makes or replaces a file out of a stream of any length; the folders above it are made when missing.
	// ErrQuota when the thread would have more in files than it may (FIL-08).
	WriteFile(ctx context.Context, path string, content io.Reader, o WriteFileOptions) (*runtimev1.FileRecord, error)
	// ReadFile opens a file as a stream of bytes; nil when there is none. Close it.
	ReadFile(ctx context.Context, path string) (io.ReadCloser, error)
	// ReadFileStream gives a file in chunks (FIL-03); nil when there is none. Leaving the loop ends the transfer.
	ReadFileStream(ctx context.Context, path string) (iter.Seq2[runtimev1.FileChunk, error], error)
	// StatFile describes a file or a folder; nil when there is none.
	StatFile(ctx context.Context, path string) (*runtimev1.FileRecord, error)
	// ReadDir lists a folder, direct entries only, by path. ErrNotFound when there is none, ErrInvalid for a file.
	ReadDir(ctx context.Context, path string, p Page) (*runtimev1.FileList, error)
	// Unlink removes a file. ErrNotFound when there is none, ErrInvalid for a folder.
	Unlink(ctx context.Context, path string) error
	// MakeDir makes a folder, with those above it; one that is there already is no error.
	MakeDir(ctx context.Context, path string) (*runtimev1.FileRecord, error)
	// RemoveDir removes a folder. ErrNotFound when there is none, ErrInvalid when it is not empty, or a file.
	RemoveDir(ctx context.Context, path string) error
	// FileStats sums up the files, with the quota when there is one.
	FileStats(ctx context.Context) (*runtimev1.FileStats, error)
	// GrepFiles finds the lines of text files that match an RE2 expression, 100 when limit is 0, 1000 at most
	// (FIL-05).
	GrepFiles(ctx context.Context, expression string, limit int) (*runtimev1.GrepList, error)
	// FindFiles lists the files whose path matches a glob of *, ** and ?, 100 when limit is 0, 1000 at most. Without a
	// leading slash it matches at any depth (FIL-05).
	FindFiles(ctx context.Context, glob string, limit int) (*runtimev1.FileMatches, error)
	// Thumbnail gives a small image of a JPEG, PNG, GIF or WebP; nil of anything else, and when there is no such file
	// (FIL-06). ErrInvalid when the image is broken or too large.
	Thumbnail(ctx context.Context, path string, o ThumbnailOptions) (*Thumbnail, error)
}

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
	return fetch[runtimev1.FileList](ctx, t, p)
}

// fetch reads a T of the thread's files.
func fetch[T any](ctx context.Context, t *Thread, params map[string]string, path ...string) (*T, error) {
	return one[T](func(out any) error { return t.getAt(ctx, out, params, runtimev1.SubresourceFiles, path...) })
}

// StatFile implements FileState.
func (t *Thread) StatFile(ctx context.Context, path string) (*runtimev1.FileRecord, error) {
	rec, err := fetch[runtimev1.FileRecord](ctx, t, map[string]string{"stat": "true"}, path)
	return rec, t.absentBelow(ctx, err)
}

// ReadDir implements FileState.
func (t *Thread) ReadDir(ctx context.Context, path string, p Page) (*runtimev1.FileList, error) {
	params := p.params()
	params["dir"] = path
	return fetch[runtimev1.FileList](ctx, t, params)
}

// FileStats implements FileState.
func (t *Thread) FileStats(ctx context.Context) (*runtimev1.FileStats, error) {
	return fetch[runtimev1.FileStats](ctx, t, map[string]string{"stats": "true"})
}

// GrepFiles implements FileState.
func (t *Thread) GrepFiles(ctx context.Context, expression string, limit int) (*runtimev1.GrepList, error) {
	p := Page{Limit: limit}.params()
	p["grep"] = expression
	return fetch[runtimev1.GrepList](ctx, t, p)
}

// FindFiles implements FileState.
func (t *Thread) FindFiles(ctx context.Context, glob string, limit int) (*runtimev1.FileMatches, error) {
	p := Page{Limit: limit}.params()
	p["find"] = glob
	return fetch[runtimev1.FileMatches](ctx, t, p)
}

// MakeDir implements FileState.
func (t *Thread) MakeDir(ctx context.Context, path string) (*runtimev1.FileRecord, error) {
	r, err := t.request(http.MethodPut, runtimev1.SubresourceFiles, path)
	if err != nil {
		return nil, err
	}
	return one[runtimev1.FileRecord](func(out any) error { return get(ctx, r.Param("directory", "true"), out) })
}

// Unlink implements FileState.
func (t *Thread) Unlink(ctx context.Context, path string) error { return t.remove(ctx, path, "false") }

// RemoveDir implements FileState.
func (t *Thread) RemoveDir(ctx context.Context, path string) error {
	return t.remove(ctx, path, "true")
}

func (t *Thread) remove(ctx context.Context, path, directory string) error {
	r, err := t.request(http.MethodDelete, runtimev1.SubresourceFiles, path)
	if err != nil {
		return err
	}
	return get(ctx, r.Param("directory", directory).MaxRetries(0), nil)
}

// DeleteFile removes a file or an empty folder; IsNotFound when missing.
func (t *Thread) DeleteFile(ctx context.Context, path string) error {
	return t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceFiles, path)
}

// ThumbnailOptions of Thumbnail: the box that it fits into, 256 by 256 when 0, 1024 by 1024 at most.
type ThumbnailOptions struct{ Width, Height int }

// Thumbnail is a small image, never larger than its source: a JPEG of a photo, a PNG of anything else.
type Thumbnail struct {
	Data     []byte
	MimeType string
}

// Thumbnail implements FileState.
func (t *Thread) Thumbnail(ctx context.Context, path string, o ThumbnailOptions) (*Thumbnail, error) {
	params := map[string]string{"thumbnail": "true"}
	if o.Width != 0 {
		params["width"] = strconv.Itoa(o.Width)
	}
	if o.Height != 0 {
		params["height"] = strconv.Itoa(o.Height)
	}
	resp, err := t.download(ctx, path, params, nil)
	if apierrors.IsNotFound(err) {
		return nil, t.absentBelow(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, explain(err)
	}
	return &Thumbnail{Data: data, MimeType: resp.Header.Get("Content-Type")}, nil
}

// ReadFileStream implements FileState.
func (t *Thread) ReadFileStream(ctx context.Context, path string) (iter.Seq2[runtimev1.FileChunk, error], error) {
	rec, err := t.StatFile(ctx, path)
	if rec == nil || err != nil {
		return nil, err
	}
	return func(yield func(runtimev1.FileChunk, error) bool) {
		body, err := t.ReadFile(ctx, path)
		if err == nil && body == nil {
			err = fmt.Errorf("%s was removed before it was read: %w", path, ErrNotFound)
		}
		if err != nil {
			yield(runtimev1.FileChunk{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		chunk(ctx, body, body.(*fileReader).size, yield)
	}, nil
}

// chunk frames a file of a known size. Nothing comes any more once the context has ended, whatever has been read by then.
func chunk(ctx context.Context, r io.Reader, size int64, yield func(runtimev1.FileChunk, error) bool) {
	total := max(1, (size+runtimev1.FileChunkBytes-1)/runtimev1.FileChunkBytes)
	for i := range total {
		data := make([]byte, min(runtimev1.FileChunkBytes, size-i*runtimev1.FileChunkBytes))
		err := ctx.Err()
		if err == nil {
			_, err = io.ReadFull(r, data)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			yield(runtimev1.FileChunk{}, err)
			return
		}
		if !yield(runtimev1.FileChunk{Data: data, Index: i, TotalChunks: total, IsLast: i == total-1}, nil) {
			return
		}
	}
}

// filePath leaves out of a path what means nothing in one, but would in a URL.
func filePath(path string) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", fmt.Errorf("%q leads out of its folder: write it without \"..\": %w", path, ErrInvalid)
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("name a file, such as /notes.txt: %w", ErrInvalid)
	}
	return strings.Join(parts, "/"), nil
}
