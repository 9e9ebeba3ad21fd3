package thread

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/google/uuid"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// blobPrefix is the prefix of the objects with the contents of files.
	blobPrefix = "blobs/"
	// headSize is how much of each write is held in memory. The digest of smaller files is known before they are
	// stored.
	headSize = 256 << 10
)

// contents keeps the bytes of files in a bucket. The store knows which object has the bytes of a digest (FIL-07). Every
// upload goes to an object of its own, under a name that is never reused. So a removal only affects the object that it
// names. Writers, copiers, removers and sweepers need no coordination, on any number of replicas.
type contents struct {
	bucket *blob.Bucket
	store  store.Store
	now    func() int64
}

// newObject returns a new object name.
func newObject() string {
	id := uuid.NewString()
	return blobPrefix + id[:2] + "/" + id
}

// content is what a file's record needs to know about its bytes.
type content struct {
	digest   string
	size     int64
	head     []byte // the whole contents when they are no larger than headSize
	object   string // uploaded for this file; "" when the bucket already had the contents
	uploaded int64  // a time before the upload ended
	instead  string // the missing object that this one replaces
}

// put stores a stream, unless the bucket already has its contents.
func (c *contents) put(ctx context.Context, r io.Reader, limit int64, tooMuch func(read int64) error) (*content, error) {
	head := make([]byte, headSize)
	n, err := io.ReadFull(r, head)
	head = head[:n:n]
	switch {
	case err == nil:
		return c.putLarge(ctx, head, r, limit, tooMuch)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, sourceError(err)
	case int64(n) > limit:
		return nil, tooMuch(int64(n))
	}
	sum := sha256.Sum256(head)
	p := &content{digest: hex.EncodeToString(sum[:]), size: int64(n), head: head}
	there, err := c.look(ctx, p)
	if err != nil || there {
		return p, err
	}
	return p, c.upload(ctx, p)
}

// look reports whether the bucket has the contents. When the object of the store's row is missing, it sets p.instead,
// so that a new upload replaces it.
func (c *contents) look(ctx context.Context, p *content) (there bool, err error) {
	object, err := c.store.Contents(ctx, p.digest)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if there, err = c.bucket.Exists(ctx, object); err != nil {
		return false, fmt.Errorf("look for contents %s: %w", p.digest, unavailable(err))
	}
	if !there {
		p.instead = object
	}
	return there, nil
}

// upload stores contents that are in memory.
func (c *contents) upload(ctx context.Context, p *content) error {
	p.object, p.uploaded = newObject(), c.now()
	_, err := c.write(ctx, p.object, bytes.NewReader(p.head))
	return err
}

// putLarge streams into an object. Whether the upload was necessary is known only at its end.
func (c *contents) putLarge(ctx context.Context, head []byte, r io.Reader, limit int64, tooMuch func(int64) error) (p *content, err error) {
	object := newObject()
	defer func() {
		if err != nil {
			c.remove(ctx, object)
		}
	}()
	hash := sha256.New()
	source := io.TeeReader(io.LimitReader(io.MultiReader(bytes.NewReader(head), r), limit+1), hash)
	counted := &boundedReader{r: source, limit: limit, tooMuch: tooMuch}
	started := &startOfEnd{r: counted, now: c.now}
	size, err := c.write(ctx, object, started)
	if err != nil {
		return nil, err
	}
	p = &content{digest: hex.EncodeToString(hash.Sum(nil)), size: size, head: head, object: object, uploaded: started.at}
	_, err = c.look(ctx, p)
	return p, err
}

// boundedReader fails when the stream is longer than the limit.
type boundedReader struct {
	r       io.Reader
	read    int64
	limit   int64
	tooMuch func(read int64) error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.read += int64(n); b.read > b.limit {
		return 0, b.tooMuch(b.read)
	}
	return n, err
}

// startOfEnd records when a stream ended, which is before the object written from it is finished.
type startOfEnd struct {
	r   io.Reader
	now func() int64
	at  int64
}

func (s *startOfEnd) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil {
		s.at = s.now()
	}
	return n, err
}

// open returns a reader of the contents, or store.ErrNotFound when the bucket does not have them.
func (c *contents) open(ctx context.Context, digest string) (io.ReadCloser, error) {
	object, err := c.store.Contents(ctx, digest)
	if err != nil {
		return nil, err
	}
	r, err := c.bucket.NewReader(ctx, object, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("contents %s are not in the bucket: %w", digest, store.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open contents %s: %w", digest, unavailable(err))
	}
	return r, nil
}

// remove deletes objects that nothing refers to, even when ctx has ended. Objects that cannot be deleted now are swept
// later, and so are those that a backup may read.
func (c *contents) remove(ctx context.Context, objects ...string) {
	if len(objects) == 0 {
		return
	}
	if held, err := c.store.ContentsHeld(context.WithoutCancel(ctx)); held || err != nil {
		return
	}
	c.drop(ctx, objects...)
}

// drop deletes objects that no backup reads, such as parts of uploads, at once. remove keeps objects while a backup runs.
func (c *contents) drop(ctx context.Context, objects ...string) {
	for _, o := range objects {
		_ = c.bucket.Delete(context.WithoutCancel(ctx), o)
	}
}

func tooLarge(limit int64) error {
	return invalid("data", "the file has more than %d bytes, the limit of one file: split it", limit)
}

// unavailable wraps errors that may disappear with a retry.
func unavailable(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: the bucket of file contents: %w", store.ErrNoSpace, err)
	}
	return fmt.Errorf("%w: the bucket of file contents: %w", store.ErrUnavailable, err)
}
