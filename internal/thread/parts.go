package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Uploads in parts are for clients whose connections do not last as long as a large upload takes. A part may be sent
// again. Uploads that are never completed are swept after a day.

const (
	// MaxPartBytes is the largest size of one part of an upload.
	MaxPartBytes = 64 << 20
	// MaxParts is the largest number of parts of one upload.
	MaxParts = 10_000

	uploadPrefix = "uploads/"
)

var uploadID = regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`)

// Upload is a file that arrives in parts.
type Upload struct {
	st   *State
	path string
	id   string
}

// Upload opens an upload to a path. The sender chooses id: 8 to 64 letters, digits, "_" and "-".
func (st *State) Upload(path, id string) (*Upload, error) {
	path, err := filePath(path)
	if err != nil {
		return nil, err
	}
	if !uploadID.MatchString(id) {
		return nil, invalid("upload", "give 8 to 64 letters, digits, \"_\" and \"-\", such as a UUID")
	}
	return &Upload{st: st, path: path, id: id}, nil
}

// prefix is the prefix of the objects of the parts.
func (u *Upload) prefix() string { return path.Join(uploadPrefix, u.st.id, u.id) + "/" }

func (u *Upload) part(n int) string { return fmt.Sprintf("%s%05d", u.prefix(), n) }

// Put stores a part, counted from 0, and returns its size. Repeating it replaces the part.
func (u *Upload) Put(ctx context.Context, n int, r io.Reader) (int64, error) {
	if n < 0 || n >= MaxParts {
		return 0, invalid("part", "give 0 to %d", MaxParts-1)
	}
	replaced, err := u.st.fileBefore(ctx, u.path)
	if err != nil {
		return 0, err
	}
	limit, tooMuch, err := u.st.room(ctx, replaced)
	if err != nil {
		return 0, err
	}
	before, err := u.stored(ctx, u.part(n))
	if err != nil {
		return 0, err
	}
	if before >= limit {
		return 0, tooMuch(before + 1)
	}
	most := min(limit-before, MaxPartBytes)
	bounded := &boundedReader{r: io.LimitReader(r, most+1), limit: most, tooMuch: func(read int64) error {
		if read > MaxPartBytes {
			return invalid("data", "a part has more than %d bytes: make the parts smaller", MaxPartBytes)
		}
		return tooMuch(before + read)
	}}
	size, err := u.st.svc.blobs.write(ctx, u.part(n), bounded)
	if err != nil || size == 0 {
		return size, err
	}
	// Parts that came meanwhile, perhaps through another replica, did not see this one. Whoever ends last sees all of them.
	if before, err = u.stored(ctx, u.part(n)); err == nil && before+size > limit {
		err = tooMuch(before + size)
	}
	if err != nil {
		u.st.svc.blobs.remove(ctx, u.part(n))
		return 0, err
	}
	return size, nil
}

// stored returns the size of all stored parts of the thread's uploads, except the part that is replaced.
func (u *Upload) stored(ctx context.Context, but string) (sum int64, err error) {
	for range listTries {
		if sum, err = u.sum(ctx, but); gcerrors.Code(err) != gcerrors.NotFound {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("list the parts of uploads: %w", unavailable(err))
	}
	return sum, nil
}

// listTries bounds how often a folder is listed in which files come and go: a file that is gone when its turn comes fails the list.
const listTries = 100

func (u *Upload) sum(ctx context.Context, but string) (sum int64, err error) {
	list := u.st.svc.blobs.bucket.List(&blob.ListOptions{Prefix: path.Join(uploadPrefix, u.st.id) + "/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
		if o.Key != but && !strings.HasSuffix(o.Key, ".tmp") {
			sum += o.Size
		}
	}
}

// Complete creates the file from its parts and removes them. It returns an *InvalidError when a part is missing.
func (u *Upload) Complete(ctx context.Context, parts int, o WriteFileOptions) (*FileRecord, error) {
	if parts < 1 || parts > MaxParts {
		return nil, invalid("parts", "give 1 to %d", MaxParts)
	}
	r := &partsReader{ctx: ctx, u: u, parts: parts}
	defer r.close()
	rec, err := u.st.WriteFile(ctx, u.path, r, o)
	if err != nil {
		return nil, err
	}
	for n := range parts {
		u.st.svc.blobs.remove(ctx, u.part(n))
	}
	return rec, nil
}

// Abort removes the stored parts.
func (u *Upload) Abort(ctx context.Context) error {
	list := u.st.svc.blobs.bucket.List(&blob.ListOptions{Prefix: u.prefix()})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the parts of an upload: %w", unavailable(err))
		}
		u.st.svc.blobs.remove(ctx, o.Key)
	}
}

// partsReader reads one part after the other.
type partsReader struct {
	ctx   context.Context
	u     *Upload
	parts int
	next  int
	open  *blob.Reader
}

func (p *partsReader) Read(b []byte) (int, error) {
	for {
		if p.open == nil {
			if p.next == p.parts {
				return 0, io.EOF
			}
			r, err := p.u.st.svc.blobs.bucket.NewReader(p.ctx, p.u.part(p.next), nil)
			if gcerrors.Code(err) == gcerrors.NotFound {
				return 0, invalid("parts", "part %d of the upload is missing: send it, then complete the upload again", p.next)
			}
			if err != nil {
				return 0, fmt.Errorf("read part %d of an upload: %w", p.next, unavailable(err))
			}
			p.open, p.next = r, p.next+1
		}
		n, err := p.open.Read(b)
		if errors.Is(err, io.EOF) {
			p.close()
			if n == 0 {
				continue
			}
			err = nil
		}
		return n, err
	}
}

func (p *partsReader) close() {
	if p.open != nil {
		_ = p.open.Close()
		p.open = nil
	}
}
