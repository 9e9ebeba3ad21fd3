package thread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/lru"

	"github.com/skein-dev/skein/internal/store"
)

const (
	defaultThumbnail = 256
	// MaxThumbnail is the largest width and height of a thumbnail.
	MaxThumbnail = 1024

	// maxImageBytes limits the file of an image. maxDecodedBytes limits the memory that decoding takes, for all images
	// in progress together.
	maxImageBytes   = 32 << 20
	maxDecodedBytes = 192 << 20

	thumbnailsKept    = 128
	maxThumbnailBytes = 256 << 10 // of a thumbnail that is cached
)

// ThumbnailOptions is the box that a thumbnail fits into: 256 by 256 when 0, 1024 by 1024 at most.
type ThumbnailOptions struct{ Width, Height int }

// Thumbnail is a small image, never larger than its source: a JPEG for a photo, a PNG for anything else.
type Thumbnail struct {
	Data          []byte
	MimeType      string
	Width, Height int
}

// thumbnails makes thumbnails with limited memory, and caches the latest by the digest of their source.
type thumbnails struct {
	memory *semaphore.Weighted
	kept   *lru.Cache
}

func newThumbnails() *thumbnails {
	return &thumbnails{memory: semaphore.NewWeighted(maxDecodedBytes), kept: lru.New(thumbnailsKept)}
}

type thumbnailKey struct {
	digest        string
	width, height int
}

// Thumbnail returns a small image of a JPEG, PNG, GIF (its first picture) or WebP. It returns nil for anything else,
// and when the file does not exist (FIL-06). It returns an *InvalidError when the image is broken, or needs too much
// memory.
func (st *State) Thumbnail(ctx context.Context, path string, o ThumbnailOptions) (*Thumbnail, error) {
	for field, n := range map[string]*int{"width": &o.Width, "height": &o.Height} {
		if *n == 0 {
			*n = defaultThumbnail
		}
		if *n < 1 || *n > MaxThumbnail {
			return nil, invalid(field, "give 1 to %d pixels", MaxThumbnail)
		}
	}
	rc, rec, digest, err := st.OpenContents(ctx, path)
	var bad *InvalidError
	if errors.As(err, &bad) && errors.Is(err, store.ErrFolder) {
		return nil, nil
	}
	if rc == nil || err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	key := thumbnailKey{digest, o.Width, o.Height}
	if t, ok := st.svc.thumbnails.kept.Get(key); ok {
		return t.(*Thumbnail), nil
	}
	switch known := rec.Width > 0; { // known as an image when it was written
	case rec.Size <= maxImageBytes:
	case known:
		return nil, invalid("path", "%s has %d bytes, more than the %d of images that thumbnails are made of", rec.Path, rec.Size, maxImageBytes)
	default:
		return nil, nil
	}
	t, err := st.svc.thumbnails.make(ctx, rc, rec, o)
	if t != nil && len(t.Data) <= maxThumbnailBytes {
		st.svc.thumbnails.kept.Add(key, t)
	}
	return t, err
}

// make decodes and shrinks an image, within the memory limit.
func (ts *thumbnails) make(ctx context.Context, r io.Reader, rec *FileRecord, o ThumbnailOptions) (*Thumbnail, error) {
	if err := ts.memory.Acquire(ctx, rec.Size); err != nil {
		return nil, err
	}
	held := rec.Size
	defer func() { ts.memory.Release(held) }()
	data := make([]byte, rec.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", rec.Path, err)
	}
	p, err := examine(data)
	if err != nil {
		return nil, invalid("path", "%s: %v", rec.Path, err)
	}
	if p == nil {
		return nil, nil
	}
	need := p.decodedBytes()
	if need+rec.Size > maxDecodedBytes {
		return nil, invalid("path", "%s is an image of %d by %d pixels, which takes more memory than thumbnails may: make it smaller first", rec.Path, p.width, p.height)
	}
	if !ts.memory.TryAcquire(need) {
		// Others wait while they hold memory for their bytes. Release ours rather than wait for each other.
		ts.memory.Release(held)
		held = 0
		if err := ts.memory.Acquire(ctx, need+rec.Size); err != nil {
			return nil, err
		}
	}
	held = need + rec.Size
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, invalid("path", "%s is a broken image: %v", rec.Path, err)
	}
	return shrink(img, o)
}

// shrink makes a thumbnail. It first samples large images down to a few times the target size, so that the good filter
// that follows has little to do.
func shrink(img image.Image, o ThumbnailOptions) (*Thumbnail, error) {
	w, h := fit(img.Bounds().Dx(), img.Bounds().Dy(), o.Width, o.Height)
	if b := img.Bounds(); b.Dx() > 8*w || b.Dy() > 8*h {
		thin := image.NewNRGBA(image.Rect(0, 0, min(4*w, b.Dx()), min(4*h, b.Dy())))
		draw.NearestNeighbor.Scale(thin, thin.Bounds(), img, b, draw.Src, nil)
		if _, photo := img.(*image.YCbCr); photo {
			img = opaque{thin}
		} else {
			img = thin
		}
	}
	small := image.NewNRGBA(image.Rect(0, 0, w, h))
	draw.BiLinear.Scale(small, small.Bounds(), img, img.Bounds(), draw.Src, nil)
	t := &Thumbnail{Width: w, Height: h, MimeType: "image/png"}
	var buf bytes.Buffer
	var err error
	switch img.(type) {
	case *image.YCbCr, opaque:
		t.MimeType = "image/jpeg"
		err = jpeg.Encode(&buf, small, &jpeg.Options{Quality: 85})
	default:
		err = png.Encode(&buf, small)
	}
	t.Data = buf.Bytes()
	return t, err
}

// opaque is an image that was a photo.
type opaque struct{ *image.NRGBA }

// fit returns the size within a box that keeps the proportions and is no larger than the source.
func fit(w, h, maxW, maxH int) (int, int) {
	if w <= maxW && h <= maxH {
		return w, h
	}
	if w*maxH > h*maxW {
		return maxW, max(1, h*maxW/w)
	}
	return max(1, w*maxH/h), maxH
}
