package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // the file:// scheme
	_ "gocloud.dev/blob/s3blob"   // the s3:// scheme

	"gocloud.dev/gcerrors"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/skein-dev/skein/internal/store"
)

// OpenBucket opens the bucket of file contents. A file:// URL is a folder, which is created when missing. Objects in it
// are written beside their final place, without side files, and are on disk before anything refers to them.
func OpenBucket(ctx context.Context, bucketURL string) (*blob.Bucket, error) {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, fmt.Errorf("bucket URL %q: %w; give one such as file:///var/lib/skein/blobs", bucketURL, err)
	}
	if u.Scheme == "file" {
		q := u.Query()
		q.Set("create_dir", "true")
		q.Set("no_tmp_dir", "true")
		q.Set("metadata", "skip")
		u.RawQuery = q.Encode()
	}
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open the bucket of file contents at %s: %w", u.Redacted(), err)
	}
	return b, nil
}

// write streams into an object and returns the number of bytes. In a folder it waits until bytes and names are on disk.
// Other buckets are durable by themselves.
func (c *contents) write(ctx context.Context, key string, r io.Reader) (size int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Close, this abandons the object
	var sync folderSync
	defer func() { err = errors.Join(err, sync.close()) }()
	w, err := c.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		BeforeWrite: func(as func(any) bool) error {
			var f *os.File
			if !as(&f) {
				return nil
			}
			return sync.watch(f)
		},
	})
	if err != nil {
		return 0, fmt.Errorf("write contents: %w", unavailable(err))
	}
	source := &sourceReader{r: r}
	if size, err = io.Copy(w, source); err != nil {
		cancel()
		_ = w.Close()
		if source.err != nil {
			return 0, sourceError(source.err)
		}
		return 0, fmt.Errorf("write contents: %w", unavailable(err))
	}
	if err := w.Close(); err != nil {
		return 0, fmt.Errorf("write contents: %w", unavailable(err))
	}
	if err := sync.flush(); err != nil {
		return 0, fmt.Errorf("write contents to disk: %w", unavailable(err))
	}
	return size, nil
}

// sourceError returns the error of a failed read: a refusal unchanged, anything else as the sender's error.
func sourceError(err error) error {
	if IsInvalid(err) || errors.Is(err, store.ErrQuota) {
		return err
	}
	return fmt.Errorf("read the file's contents: %w", err)
}

// sourceReader records the reader's error, to distinguish it from an error of the bucket.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// folderSync syncs a file that another package writes, renames and closes, and the folders that hold its name.
type folderSync struct {
	file *os.File
	dir  string
}

// watch duplicates the file handle, so that it stays valid after the writer closes its own.
func (s *folderSync) watch(f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.file, s.dir = os.NewFile(uintptr(fd), f.Name()), filepath.Dir(f.Name())
	return nil
}

func (s *folderSync) flush() error {
	if s.file == nil {
		return nil
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	for _, dir := range []string{s.dir, filepath.Dir(s.dir)} {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (s *folderSync) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// listAgain lists objects until none has gone meanwhile. A folder is listed by name first, and its files are read afterwards, so a file that
// is removed in between ends the list with not found. Listing again does not meet the file.
func listAgain[T any](ctx context.Context, list func() (T, error)) (listed T, err error) {
	delays := wait.Backoff{Duration: time.Millisecond, Factor: 1.3, Jitter: 1, Steps: 20}
	for {
		if listed, err = list(); gcerrors.Code(err) != gcerrors.NotFound || delays.Steps == 0 {
			return listed, err
		}
		select {
		case <-time.After(delays.Step()):
		case <-ctx.Done():
			return listed, err
		}
	}
}
