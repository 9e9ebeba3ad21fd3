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

// FileState is the part of ThreadState for files (FIL-01). Paths are absolute and the server normalises them. A path
// that contains "..", NUL or is too long is ErrInvalid (FIL-04).
type FileState interface {
	// WriteFile creates or replaces a file from a stream of any length. It creates missing folders above the file. It
	// returns ErrQuota when the thread would exceed its quota of files (FIL-08).
	WriteFile(ctx context.Context, path string, content io.Reader, o WriteFileOptions) (*runtimev1.FileRecord, error)
	// ReadFile opens a file as a stream of bytes, or returns nil when there is none. The caller must close it.
	ReadFile(ctx context.Context, path string) (io.ReadCloser, error)
	// ReadFileStream returns a file in chunks (FIL-03), or nil when there is none. Leaving the loop ends the
	// transfer.
	ReadFileStream(ctx context.Context, path string) (iter.Seq2[runtimev1.FileChunk, error], error)
	// StatFile returns the record of a file or a folder, or nil when there is none.
	StatFile(ctx context.Context, path string) (*runtimev1.FileRecord, error)
	// ReadDir lists the direct entries of a folder, by path. It returns ErrNotFound when there is no folder, and
	// ErrInvalid for a file.
	ReadDir(ctx context.Context, path string, p Page) (*runtimev1.FileList, error)
	// Unlink removes a file. It returns ErrNotFound when there is none, and ErrInvalid for a folder.
	Unlink(ctx context.Context, path string) error
	// MakeDir creates a folder and those above it. An existing folder is no error.
	MakeDir(ctx context.Context, path string) (*runtimev1.FileRecord, error)
	// RemoveDir removes a folder. It returns ErrNotFound when there is none, and ErrInvalid when it is not empty or
	// is a file.
	RemoveDir(ctx context.Context, path string) error
	// FileStats returns the number and size of the files, with the quota when there is one.
	FileStats(ctx context.Context) (*runtimev1.FileStats, error)
	// GrepFiles finds the lines of text files that match an RE2 expression (FIL-05). A limit of 0 means 100; the
	// maximum is 1000.
	GrepFiles(ctx context.Context, expression string, limit int) (*runtimev1.GrepList, error)
	// FindFiles lists the files whose path matches a glob of *, ** and ? (FIL-05). A limit of 0 means 100; the
	// maximum is 1000. A glob without a leading slash matches at any depth.
	FindFiles(ctx context.Context, glob string, limit int) (*runtimev1.FileMatches, error)
	// Thumbnail returns a small image of a JPEG, PNG, GIF or WebP (FIL-06). It returns nil for any other file and
	// when there is no file, and ErrInvalid when the image is broken or too large.
	Thumbnail(ctx context.Context, path string, o ThumbnailOptions) (*Thumbnail, error)
}

// FileOptions select files. Glob excludes Prefix and Recursive.
type FileOptions struct {
	Page
	Prefix    string // a folder; empty means the root
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

// fetch reads an answer of type T about the thread's files.
func fetch[T any](ctx context.Context, t *Thread, params map[string]string, path ...string) (*T, error) {
	return readAs[T](ctx, t, params, runtimev1.SubresourceFiles, path...)
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
	return getAs[runtimev1.FileRecord](ctx, r.Param("directory", "true"))
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

// DeleteFile removes a file or an empty folder. A missing one is an error that IsNotFound.
func (t *Thread) DeleteFile(ctx context.Context, path string) error {
	return t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceFiles, path)
}

// ThumbnailOptions are the options of Thumbnail: the box that the image fits into. 0 means 256; the maximum is 1024.
type ThumbnailOptions struct{ Width, Height int }

// Thumbnail is a small image, never larger than its source: a JPEG for a photo, a PNG for anything else.
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

// chunk splits a file of a known size into chunks. It yields no chunk after ctx has ended, even if more was read.
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

// filePath removes parts of a path that mean nothing in a path but would in a URL.
func filePath(path string) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", invalidError(fmt.Sprintf("%q leads out of its folder: write it without \"..\"", path))
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "", invalidError("set the path of a file, such as /notes.txt")
	}
	return strings.Join(parts, "/"), nil
}
