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
	if f.Path == "/" || path.Clean(f.Path) != f.Path || f.Path[0] != '/' {
		return fmt.Errorf("the path %q is not normalised", f.Path)
	}
	var dir bool
	var digest string
	err := t.row(t.ctx, qFileBefore, []any{h.key, f.Path}, &dir, &digest)
	switch {
	case err == nil && dir != f.Dir:
		return refuse(f.Path, dir)
	case err == nil && dir:
		return nil
	case errors.Is(err, store.ErrNotFound):
		if err := t.makeFolders(h, f.Path); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if f.CreatedAt == 0 {
		f.CreatedAt = t.now
	}
	if err := t.insertFile(h, f); err != nil {
		return err
	}
	if digest != f.Digest {
		op.Replaced = digest
	}
	return t.logFile(h, store.EventFileWritten, fileEvent{Path: f.Path, MimeType: f.MimeType, Size: f.Size, IsDirectory: f.Dir})
}

// refuse says what stands in the way at a path.
func refuse(p string, dir bool) error {
	if dir {
		return fmt.Errorf("%s: %w", p, store.ErrFolder)
	}
	return fmt.Errorf("%s: %w", p, store.ErrNotFolder)
}

// makeFolders makes the folders above a path. A folder that is there has its own folders too.
func (t *tx) makeFolders(h *head, p string) error {
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		var dir bool
		var digest string
		err := t.row(t.ctx, qFileBefore, []any{h.key, p}, &dir, &digest)
		switch {
		case err == nil && dir:
			return nil
		case err == nil:
			return refuse(p, dir)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		if err := t.insertFile(h, &store.File{Path: p, Dir: true, CreatedAt: t.now}); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) insertFile(h *head, f *store.File) error {
	return t.write(t.ctx, qPutFile, h.key, f.Path, path.Dir(f.Path), f.Dir, f.MimeType, f.Digest, f.Size,
		nullJSON(f.Metadata), f.Width, f.Height, f.CreatedAt)
}

func (t *tx) removeFile(h *head, op *store.RemoveFile) error {
	var dir bool
	if err := t.row(t.ctx, qFileBefore, []any{h.key, op.Path}, &dir, &op.Digest); err != nil {
		return fmt.Errorf("%s: %w", op.Path, err)
	}
	if dir {
		var one int
		err := t.row(t.ctx, qFolderFilled, []any{h.key, op.Path}, &one)
		if err == nil {
			return fmt.Errorf("%s is not empty: %w", op.Path, store.ErrFolder)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if err := t.write(t.ctx, qDeleteFile, h.key, op.Path); err != nil {
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

// File by path.
func (s *Store) File(ctx context.Context, threadID, p string) (f *store.File, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		f, err = scanFile(c.one(ctx, qFile, threadID, p))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("file %s of thread %s: %w", p, threadID, err)
	}
	return f, nil
}

// Files below a folder, by path.
func (s *Store) Files(ctx context.Context, threadID, prefix string, recursive bool) ([]store.File, error) {
	query, args := qFilesDirect, []any{threadID, prefix}
	if recursive {
		below := prefix
		if below != "/" {
			below += "/"
		}
		// All that begins with the folder's name and a slash: up to the character after the slash.
		query, args = qFilesBelow, []any{threadID, below, below[:len(below)-1] + "0"}
	}
	files := []store.File{}
	err := s.readers.read(ctx, func(c *conn) error {
		return c.rows(ctx, query, args, func(scan scanner) error {
			f, err := scanFile(scan)
			if err != nil {
				return err
			}
			files = append(files, *f)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("files of thread %s: %w", threadID, err)
	}
	return files, nil
}

// DigestReferenced tells whether any file has these contents. It asks behind the commits of the present.
func (s *Store) DigestReferenced(ctx context.Context, digest string) (used bool, err error) {
	err = s.readers.read(ctx, func(c *conn) error {
		used, err = digestUsed(ctx, c, digest)
		return err
	})
	return used, err
}

func digestUsed(ctx context.Context, c querier, digest string) (bool, error) {
	var one int
	err := c.row(ctx, qDigestUsed, []any{digest}, &one)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
