package thread

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"

	"github.com/skein-dev/skein/internal/store"
)

// ImageInfo is what the contents of a file say about its image.
type ImageInfo struct {
	MimeType      string // image/png, image/jpeg, image/gif or image/webp
	Width, Height int
	Size          int64 // of the file, in bytes
}

// ImageInfo reads the head of the image in a file. It does not rely on the file's record: the type there is the one that the writer or the
// name gave, and files that were written in parts have no width. It returns nil when the file does not exist, or is not a JPEG, PNG, GIF
// or WebP, or has a broken head.
func (st *State) ImageInfo(ctx context.Context, path string) (*ImageInfo, error) {
	rc, rec, _, err := st.OpenContents(ctx, path)
	var bad *InvalidError
	if errors.As(err, &bad) && errors.Is(err, store.ErrFolder) {
		return nil, nil
	}
	if rc == nil || err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	r := failingReader{Reader: io.LimitReader(rc, maxImageBytes)}
	c, kind, err := image.DecodeConfig(&r)
	switch {
	case r.err != nil:
		return nil, fmt.Errorf("read %s: %w", rec.Path, r.err)
	case err != nil, c.Width <= 0, c.Height <= 0:
		return nil, nil
	}
	return &ImageInfo{MimeType: "image/" + kind, Width: c.Width, Height: c.Height, Size: rec.Size}, nil
}

// failingReader keeps the error of a read, to distinguish it from errors in what was read.
type failingReader struct {
	io.Reader
	err error
}

func (r *failingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
