package thread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Uploads in parts are for clients whose connections do not last as long as a large upload takes. A part may be sent
// again. Uploads that are never completed are swept after a day. A backup has no parts, so they are removed also while one is read.

const (
	// MaxPartBytes is the largest size of one part of an upload.
	MaxPartBytes = 64 << 20
	// MaxParts is the largest number of parts that the uploads of a thread have together. Each part that comes is counted with those
	// before it, so this also bounds what a part costs: a thousand objects are one page of a bucket's list.
	MaxParts = 1000
	// MaxCompleteParts is the largest number of parts from which a file is made. An upload that began when a thread might have more than
	// MaxParts is still completed.
	MaxCompleteParts = 10_000

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
		return 0, invalid("part", "give 0 to %d, and make the parts larger if the file has more: a part may have %d bytes", MaxParts-1, MaxPartBytes)
	}
	replaced, err := u.st.fileBefore(ctx, u.path)
	if err != nil {
		return 0, err
	}
	limit, tooMuch, err := u.st.room(ctx, replaced)
	if err != nil {
		return 0, err
	}
	others, err := u.others(ctx, n)
	if err != nil {
		return 0, err
	}
	if err := others.full(); err != nil {
		return 0, err
	}
	if others.bytes >= limit {
		return 0, tooMuch(others.bytes + 1)
	}
	most := min(limit-others.bytes, MaxPartBytes)
	bounded := &boundedReader{r: io.LimitReader(r, most+1), limit: most, tooMuch: func(read int64) error {
		if read > MaxPartBytes {
			return invalid("data", "a part has more than %d bytes: make the parts smaller", MaxPartBytes)
		}
		return tooMuch(others.bytes + read)
	}}
	// A sweep may have seen an earlier part of this name, a day ago.
	if err := u.st.svc.store.ForgetObject(ctx, u.part(n)); err != nil {
		return 0, err
	}
	size, err := u.st.svc.blobs.write(ctx, u.part(n), bounded)
	if err != nil {
		return 0, err
	}
	// Parts that came meanwhile, perhaps through another replica, did not see this one. The upload that ends last sees all of them.
	if others, err = u.others(ctx, n); err == nil {
		err = others.full()
	}
	if err == nil && others.bytes+size > limit {
		err = tooMuch(others.bytes + size)
	}
	if err != nil {
		u.st.svc.blobs.drop(ctx, u.part(n))
		return 0, err
	}
	return size, nil
}

// stored is what the uploads of a thread have stored: how many parts, and their bytes. Beyond MaxParts no more are counted.
type stored struct {
	parts   int
	bytes   int64
	uploads []uploadParts // in the order of their ids
}

// uploadParts is how many parts an upload has stored.
type uploadParts struct {
	id    string
	parts int
}

// add counts a part. Those of an upload follow each other.
func (s *stored) add(id string, size int64) {
	s.parts++
	s.bytes += size
	if n := len(s.uploads); n == 0 || s.uploads[n-1].id != id {
		s.uploads = append(s.uploads, uploadParts{id: id})
	}
	s.uploads[len(s.uploads)-1].parts++
}

// maxNamed is how many uploads an error names: those with the most parts.
const maxNamed = 5

// full returns an *InvalidError if there is no room for one more part.
func (s stored) full() error {
	if s.parts < MaxParts {
		return nil
	}
	slices.SortStableFunc(s.uploads, func(a, b uploadParts) int { return b.parts - a.parts })
	var names []string
	for _, u := range s.uploads[:min(len(s.uploads), maxNamed)] {
		names = append(names, fmt.Sprintf("%q (%d parts)", u.id, u.parts))
	}
	if more := len(s.uploads) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d others", more))
	}
	return invalid("part", "the uploads of the thread have %d parts that are not completed, and may have no more: %s: complete or cancel them (DELETE files/{path}?upload=ID), or make the parts larger",
		MaxParts, strings.Join(names, ", "))
}

// others returns all that is stored except part n of this upload, which is being replaced.
func (u *Upload) others(ctx context.Context, n int) (stored, error) {
	s, err := listAgain(ctx, func() (stored, error) { return u.list(ctx, u.part(n)) })
	if err != nil {
		return s, fmt.Errorf("list the parts of uploads: %w", unavailable(err))
	}
	return s, nil
}

func (u *Upload) list(ctx context.Context, but string) (s stored, err error) {
	list := u.st.svc.blobs.bucket.List(&blob.ListOptions{Prefix: path.Join(uploadPrefix, u.st.id) + "/"})
	for s.parts < MaxParts {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, err
		}
		if o.Key != but && !strings.HasSuffix(o.Key, ".tmp") {
			s.add(path.Base(path.Dir(o.Key)), o.Size)
		}
	}
	return s, nil
}

// Complete creates the file from its parts and removes them. It returns an *InvalidError when a part is missing.
func (u *Upload) Complete(ctx context.Context, parts int, o WriteFileOptions) (*FileRecord, error) {
	if parts < 1 || parts > MaxCompleteParts {
		return nil, invalid("parts", "give 1 to %d", MaxCompleteParts)
	}
	r := &partsReader{ctx: ctx, u: u, parts: parts}
	defer r.close()
	rec, err := u.st.WriteFile(ctx, u.path, r, o)
	if err != nil {
		return nil, err
	}
	for n := range parts {
		u.st.svc.blobs.drop(ctx, u.part(n))
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
		u.st.svc.blobs.drop(ctx, o.Key)
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
