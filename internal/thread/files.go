package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// WriteFileOptions are the options of WriteFile.
type WriteFileOptions struct {
	MimeType string          // guessed from the name when empty
	Metadata json.RawMessage // an object; nil for none
}

// WriteFile creates or replaces a file from a stream, in bounded memory (FIL-03, FIL-04). It creates missing parent
// folders.
func (st *State) WriteFile(ctx context.Context, path string, r io.Reader, o WriteFileOptions) (*FileRecord, error) {
	path, err := filePath(path)
	if err != nil {
		return nil, err
	}
	if err := st.svc.checkJSON("metadata", o.Metadata, st.svc.limits.valueBytes); err != nil {
		return nil, err
	}
	if err := checkText("mimeType", o.MimeType); err != nil {
		return nil, err
	}
	// Refuse before reading the bytes, not after.
	replaced, err := st.fileBefore(ctx, path)
	if err != nil {
		return nil, err
	}
	limit, tooMuch, err := st.room(ctx, replaced)
	if err != nil {
		return nil, err
	}
	c, err := st.svc.blobs.put(ctx, r, limit, tooMuch)
	if err != nil {
		return nil, err
	}
	f := store.File{Path: path, MimeType: mimeType(path, o.MimeType), Metadata: o.Metadata, CreatedAt: st.svc.now()}
	f.Width, f.Height = imageSize(c.head)
	written, err := st.putContents(ctx, c, f)
	if err != nil {
		return nil, err
	}
	return recordOf(written), nil
}

// fileBefore returns the file at a path, or nil when there is none. A folder is an *InvalidError.
func (st *State) fileBefore(ctx context.Context, path string) (*store.File, error) {
	f, err := st.svc.store.File(ctx, st.id, path)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case f.Dir:
		return nil, pathError(path, store.ErrFolder)
	}
	return f, nil
}

// OpenFile returns a file's contents as a stream and its record; nil, nil, nil when it does not exist. Close the
// stream.
func (st *State) OpenFile(ctx context.Context, path string) (io.ReadCloser, *FileRecord, error) {
	rc, rec, _, err := st.OpenContents(ctx, path)
	return rc, rec, err
}

// OpenContents is OpenFile, and also returns the SHA-256 of the contents in hex.
func (st *State) OpenContents(ctx context.Context, path string) (_ io.ReadCloser, _ *FileRecord, sum string, _ error) {
	return st.openContents(ctx, path, func(*store.File) error { return nil })
}

// openContents is OpenContents. It calls before with the record of a file, and opens the file unless that returns an error.
func (st *State) openContents(ctx context.Context, path string, before func(*store.File) error) (_ io.ReadCloser, _ *FileRecord, sum string, _ error) {
	path, err := filePath(path)
	if err != nil {
		return nil, nil, "", err
	}
	var digest string
	for {
		f, err := st.svc.store.File(ctx, st.id, path)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil, "", nil
		}
		if err != nil {
			return nil, nil, "", err
		}
		if f.Dir {
			return nil, nil, "", pathError(path, store.ErrFolder)
		}
		if err := before(f); err != nil {
			return nil, nil, "", err
		}
		rc, err := st.svc.blobs.open(ctx, f.Digest)
		if err == nil {
			return rc, recordOf(f), f.Digest, nil
		}
		// The file was replaced between the two reads, so its new contents are elsewhere. The same digest again means
		// that the contents are lost.
		if !errors.Is(err, store.ErrNotFound) || f.Digest == digest {
			return nil, nil, "", fmt.Errorf("open %s of thread %s: %w", path, st.id, err)
		}
		digest = f.Digest
	}
}

// copyRoom is how much larger than the file a copy of it may be: an encoded answer begins with its length and kind.
const copyRoom = 64

// ReadFile returns a whole file of at most limit bytes; nil, nil, nil when it does not exist. Before it opens the file it draws the memory
// of the contents from the account of ctx, and ahead the memory of each of the copies that the caller makes of them.
func (st *State) ReadFile(ctx context.Context, path string, limit int64, copies int) ([]byte, *FileRecord, error) {
	memory, drawn := membudget.From(ctx), int64(0)
	rc, rec, _, err := st.openContents(ctx, path, func(f *store.File) error {
		if f.Size > limit {
			return invalid("path", "%s has %d bytes, more than the %d that can be read at once: read it as a stream", f.Path, f.Size, limit)
		}
		memory.Return(drawn) // for the file that was replaced in the meantime
		drawn = f.Size + int64(copies)*(f.Size+copyRoom)
		if err := memory.DrawAhead(ctx, drawn); err != nil {
			return err
		}
		return memory.Draw(ctx, f.Size)
	})
	if rc == nil || err != nil {
		return nil, nil, err
	}
	defer rc.Close()
	data := make([]byte, rec.Size)
	if _, err := io.ReadFull(rc, data); err != nil {
		return nil, nil, fmt.Errorf("read %s of thread %s: %w", rec.Path, st.id, err)
	}
	return data, rec, nil
}

// StatFile describes a file or a folder; nil when it does not exist.
func (st *State) StatFile(ctx context.Context, path string) (*FileRecord, error) {
	path, err := NormalizePath(path)
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return recordOf(&store.File{Path: "/", Dir: true}), nil
	}
	f, err := st.svc.store.File(ctx, st.id, path)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return recordOf(f), nil
}

// Unlink removes a file. It returns store.ErrNotFound when the file does not exist. A folder is an *InvalidError.
func (st *State) Unlink(ctx context.Context, path string) error {
	path, err := filePath(path)
	if err != nil {
		return err
	}
	if _, err := st.fileBefore(ctx, path); err != nil {
		return err
	}
	op := &store.RemoveFile{Path: path}
	if err := st.Apply(ctx, op); err != nil {
		return pathError(path, err)
	}
	st.svc.blobs.remove(ctx, op.Freed...)
	return nil
}

// pathError explains the store's refusal of a path.
func pathError(path string, err error) error {
	var e *InvalidError
	switch {
	case errors.Is(err, store.ErrFolder):
		e = invalid("path", "%s is a folder: name a file", path)
	case errors.Is(err, store.ErrNotFolder):
		e = invalid("path", "%s cannot be a folder or be in one: a file has that path, or one above it", path)
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%s: %w", path, err)
	default:
		return err
	}
	e.cause = err
	return e
}
