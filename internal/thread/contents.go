package thread

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/skein-dev/skein/internal/store"
)

const (
	blobPrefix = "blobs/"
	tempPrefix = "tmp/"
	// headSize is kept in memory of each write: smaller files need no temporary object.
	headSize = 256 << 10
)

// contents keeps the bytes of files in a bucket, by SHA-256.
type contents struct {
	bucket *blob.Bucket
	pins   *pins
}

// newContents keeps bytes in a bucket; referenced tells whether a row of any thread still needs a digest.
func newContents(b *blob.Bucket, referenced func(ctx context.Context, digest string) (bool, error)) *contents {
	c := &contents{bucket: b}
	c.pins = newPins(func(ctx context.Context, digest string) error {
		used, err := referenced(ctx, digest)
		if used || err != nil {
			return err
		}
		if err := b.Delete(ctx, blobKey(digest)); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return fmt.Errorf("remove contents %s: %w", digest, unavailable(err))
		}
		return nil
	})
	return c
}

func blobKey(digest string) string { return blobPrefix + digest[:2] + "/" + digest[2:] }

// content is what put has stored.
type content struct {
	digest  string
	size    int64
	head    []byte
	release func() // call once the row is there, or will not be
}

// put stores a stream under its digest and holds it back from removal until release.
func (c *contents) put(ctx context.Context, r io.Reader, limit int64) (*content, error) {
	head := make([]byte, headSize)
	n, err := io.ReadFull(r, head)
	head = head[:n]
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if int64(n) > limit {
			return nil, tooLarge(limit)
		}
		sum := sha256.Sum256(head)
		stored := c.pinnedContent(hex.EncodeToString(sum[:]), int64(n), head)
		if err := c.store(ctx, stored.digest, func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(head)), nil
		}, ""); err != nil {
			stored.release()
			return nil, err
		}
		return stored, nil
	case err != nil:
		return nil, fmt.Errorf("read the file's contents: %w", err)
	}
	return c.putLarge(ctx, head, r, limit)
}

// putLarge streams through a temporary object, because the name is known only at the end.
func (c *contents) putLarge(ctx context.Context, head []byte, r io.Reader, limit int64) (*content, error) {
	temp := tempPrefix + uuid.NewString()
	defer func() {
		// Also when ctx was cancelled; what a crash leaves is swept.
		_ = c.bucket.Delete(context.WithoutCancel(ctx), temp)
	}()
	hash := sha256.New()
	source := io.TeeReader(io.LimitReader(io.MultiReader(bytes.NewReader(head), r), limit+1), hash)
	size, err := c.write(ctx, temp, source, false)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, tooLarge(limit)
	}
	stored := c.pinnedContent(hex.EncodeToString(hash.Sum(nil)), size, head)
	if err := c.store(ctx, stored.digest, func() (io.ReadCloser, error) {
		return c.bucket.NewReader(ctx, temp, nil)
	}, temp); err != nil {
		stored.release()
		return nil, err
	}
	return stored, nil
}

func (c *contents) pinnedContent(digest string, size int64, head []byte) *content {
	return &content{digest: digest, size: size, head: head, release: c.pins.pin(digest)}
}

// store writes contents under their digest unless they are there. A bucket of a provider copies the
// temporary object by itself; in a folder the copy is written again, for the sake of its fsync.
func (c *contents) store(ctx context.Context, digest string, open func() (io.ReadCloser, error), temp string) error {
	key := blobKey(digest)
	there, err := c.bucket.Exists(ctx, key)
	if err != nil {
		return fmt.Errorf("look for contents %s: %w", digest, unavailable(err))
	}
	if there {
		return nil
	}
	if temp != "" && !isFolder(c.bucket) {
		if err := c.bucket.Copy(ctx, key, temp, nil); err != nil {
			return fmt.Errorf("store contents %s: %w", digest, unavailable(err))
		}
		return nil
	}
	rc, err := open()
	if err != nil {
		return fmt.Errorf("store contents %s: %w", digest, unavailable(err))
	}
	defer rc.Close()
	_, err = c.write(ctx, key, rc, true)
	return err
}

// open gives a reader; store.ErrNotFound when the bucket has no such contents.
func (c *contents) open(ctx context.Context, digest string) (io.ReadCloser, error) {
	r, err := c.bucket.NewReader(ctx, blobKey(digest), nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("contents %s are not in the bucket: %w", digest, store.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open contents %s: %w", digest, unavailable(err))
	}
	return r, nil
}

// pin holds contents back from removal until the returned function is called.
func (c *contents) pin(digest string) (unpin func()) { return c.pins.pin(digest) }

// collect removes the contents that no row refers to and nobody is about to refer to.
func (c *contents) collect(ctx context.Context, digests ...string) error {
	var errs []error
	for _, d := range digests {
		if d == "" {
			continue
		}
		errs = append(errs, c.pins.collect(ctx, d))
	}
	return errors.Join(errs...)
}

func tooLarge(limit int64) error {
	return invalid("data", "the file has more than %d bytes, the limit of one file: split it", limit)
}

// unavailable marks what may work when tried again.
func unavailable(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: the bucket of file contents: %w", store.ErrUnavailable, err)
}
