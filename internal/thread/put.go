package thread

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// maxUploads is how often contents in memory are uploaded for one file.
const maxUploads = 3

// putContents creates a file from contents that put has stored. Once the row is written, or certainly will not be, it
// removes the objects that are no longer needed.
func (st *State) putContents(ctx context.Context, p *content, f store.File) (*store.File, error) {
	f.Digest, f.Size = p.digest, p.size
	for attempt := 1; ; attempt++ {
		op := &store.PutFile{File: f, Object: p.object, Uploaded: p.uploaded, Instead: p.instead, Quota: st.svc.quota}
		err := st.Apply(ctx, op)
		switch {
		case err == nil:
			st.svc.blobs.remove(ctx, op.Freed...)
			return &op.File, nil
		case p.object != "" && isRefused(err):
			st.svc.blobs.remove(ctx, p.object)
		}
		if !errors.Is(err, store.ErrNoContents) {
			return nil, pathError(f.Path, err)
		}
		if int64(len(p.head)) < p.size || attempt == maxUploads {
			return nil, fmt.Errorf("%w: the upload of %s ended too long ago: send it again: %w", store.ErrUnavailable, f.Path, err)
		}
		// The contents disappeared between look and the write, so upload them now.
		if err := st.svc.blobs.upload(ctx, p); err != nil {
			return nil, err
		}
	}
}

// isRefused reports whether an error of Apply or RestoreContents means that nothing was written. After an outage that is unknown: the upload
// stays, and is swept unless a file refers to it after all.
func isRefused(err error) bool {
	var unfit *store.BackupError
	if errors.As(err, &unfit) {
		return true
	}
	for _, kind := range []error{
		store.ErrFolder, store.ErrNotFolder, store.ErrQuota, store.ErrNoContents, store.ErrNotFound, store.ErrTerminated,
		store.ErrFenced, store.ErrConflict, store.ErrRestored,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// room returns how large the file at a path may be, and the error for a larger one: the limit of one file, or what the
// quota leaves. It saves the bucket uploads that the store would refuse afterwards.
func (st *State) room(ctx context.Context, replaced *store.File) (limit int64, tooMuch func(read int64) error, err error) {
	limit = st.svc.limits.fileBytes
	tooMuch = func(int64) error { return tooLarge(st.svc.limits.fileBytes) }
	u, err := st.svc.store.FileUsage(ctx, st.id)
	if err != nil {
		return 0, nil, err
	}
	q := u.Quota(st.svc.quota)
	if q.Bytes == 0 {
		return limit, tooMuch, nil
	}
	others := u.Bytes
	var before int64
	if replaced != nil {
		before = replaced.Size
		others -= before
	}
	// A file that does not grow is always accepted.
	if left := max(q.Bytes-others, before); left < limit {
		limit = left
		tooMuch = func(read int64) error {
			return &store.QuotaError{Resource: "bytes", Limit: q.Bytes, Wanted: others + read}
		}
	}
	return limit, tooMuch, nil
}
