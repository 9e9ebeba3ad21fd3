package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/skein-dev/skein/internal/store"
)

func (t *tx) putFile(h *head, op *store.PutFile) error {
	f := &op.File
	op.Freed = nil
	if f.Path == "/" || path.Clean(f.Path) != f.Path || f.Path[0] != '/' {
		return fmt.Errorf("the path %q is not normalised", f.Path)
	}
	var dir bool
	var digest string
	var size, folders int64
	err := t.row(t.ctx, qFileBefore, []any{h.key, f.Path}, &dir, &digest, &size)
	fresh := errors.Is(err, store.ErrNotFound)
	switch {
	case err == nil && dir != f.Dir:
		return refuse(f.Path, dir)
	case err == nil && dir:
		return nil
	case fresh:
		if folders, err = t.makeFolders(h, f.Path); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	change := usage{folders: folders, bytes: f.Size - size}
	switch {
	case f.Dir:
		change.folders++
	case fresh:
		change.files = 1
	}
	if err := t.account(h, change, op.Quota); err != nil {
		return err
	}
	if !f.Dir {
		if err := t.holdContents(op); err != nil {
			return err
		}
	}
	if f.CreatedAt == 0 {
		f.CreatedAt = t.now
	}
	if err := t.insertFile(h, f); err != nil {
		return err
	}
	switch {
	case f.Dir:
	case digest == "":
		h.diff.Added++
	case digest != f.Digest:
		h.diff.Changed++
	}
	if digest != f.Digest {
		if err := t.free(&op.Freed, digest); err != nil {
			return err
		}
	}
	return t.logFile(h, store.EventFileWritten, fileEvent{Path: f.Path, MimeType: f.MimeType, Size: f.Size, IsDirectory: f.Dir})
}

// free adds to freed the object of contents that nothing refers to any more.
func (t *tx) free(freed *[]string, digest string) error {
	object, err := t.freeContents(digest)
	if object != "" {
		*freed = append(*freed, object)
	}
	return err
}

// refuse returns the error for a file or a folder that is in the way at a path.
func refuse(p string, dir bool) error {
	if dir {
		return fmt.Errorf("%s: %w", p, store.ErrFolder)
	}
	return fmt.Errorf("%s: %w", p, store.ErrNotFolder)
}

// makeFolders creates the folders above a path and returns how many it created. It stops at an existing folder, whose
// own parents exist.
func (t *tx) makeFolders(h *head, p string) (made int64, err error) {
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		var dir bool
		var digest string
		var size int64
		err := t.row(t.ctx, qFileBefore, []any{h.key, p}, &dir, &digest, &size)
		switch {
		case err == nil && dir:
			return made, nil
		case err == nil:
			return made, refuse(p, dir)
		case !errors.Is(err, store.ErrNotFound):
			return made, err
		}
		if err := t.insertFile(h, &store.File{Path: p, Dir: true, CreatedAt: t.now}); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}

func (t *tx) insertFile(h *head, f *store.File) error {
	return t.write(t.ctx, qPutFile, h.key, f.Path, path.Dir(f.Path), f.Dir, f.MimeType, f.Digest, f.Size,
		nullJSON(f.Metadata), f.Width, f.Height, f.CreatedAt)
}

func (t *tx) removeFile(h *head, op *store.RemoveFile) error {
	op.Freed = nil
	var dir bool
	var digest string
	var size int64
	if err := t.row(t.ctx, qFileBefore, []any{h.key, op.Path}, &dir, &digest, &size); err != nil {
		return fmt.Errorf("%s: %w", op.Path, err)
	}
	change := usage{files: -1, bytes: -size}
	if dir {
		change = usage{folders: -1}
		var one int
		filled, err := found(t.row(t.ctx, qFolderFilled, []any{h.key, op.Path}, &one))
		if filled {
			return fmt.Errorf("%s is not empty: %w", op.Path, store.ErrFolder)
		}
		if err != nil {
			return err
		}
	}
	if err := t.write(t.ctx, qDeleteFile, h.key, op.Path); err != nil {
		return err
	}
	if !dir {
		h.diff.Removed++
	}
	if err := t.account(h, change, store.FileQuota{}); err != nil {
		return err
	}
	if err := t.free(&op.Freed, digest); err != nil {
		return err
	}
	return t.logFile(h, store.EventFileDeleted, fileEvent{Path: op.Path, IsDirectory: dir})
}

// fileEvent is the data of the log entries of files.
type fileEvent struct {
	Path        string `json:"path"`
	MimeType    string `json:"mimeType,omitempty"`
	Size        int64  `json:"size,omitempty"`
	IsDirectory bool   `json:"isDirectory,omitempty"`
}

func (t *tx) logFile(h *head, kind string, e fileEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = t.log(h, store.Event{Type: kind, Data: data})
	return err
}

// File implements store.Store.
func (s *Store) File(ctx context.Context, threadID, p string) (*store.File, error) {
	f, err := readOne(ctx, s.readers, scanFile, qFile, threadID, p)
	if err != nil {
		return nil, fmt.Errorf("file %s of thread %s: %w", p, threadID, err)
	}
	return f, nil
}

// Files implements store.Store.
func (s *Store) Files(ctx context.Context, threadID, prefix string, recursive bool) ([]store.File, error) {
	query, args := qFilesDirect, []any{threadID, prefix}
	if recursive {
		below := prefix
		if below != "/" {
			below += "/"
		}
		// These are all paths that begin with the folder's name and a slash: the range ends at the character after the
		// slash.
		query, args = qFilesBelow, []any{threadID, below, below[:len(below)-1] + "0"}
	}
	files, err := readList(ctx, s.readers, scanFile, query, args...)
	if err != nil {
		return nil, fmt.Errorf("files of thread %s: %w", threadID, err)
	}
	return files, nil
}
