// Package files holds the files of threads, their contents in the bucket, and what they use of a quota.
package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Put writes a file or a folder, with the folders above it.
func Put(t *txn.Tx, h *txn.Head, op *store.PutFile) error {
	f := &op.File
	op.Freed = nil
	if f.Path == "/" || path.Clean(f.Path) != f.Path || f.Path[0] != '/' {
		return fmt.Errorf("the path %q is not normalised", f.Path)
	}
	var dir bool
	var digest string
	var size, folders int64
	err := t.Row(t.Ctx, queries.FileBefore, []any{h.Key, f.Path}, &dir, &digest, &size)
	fresh := errors.Is(err, store.ErrNotFound)
	switch {
	case err == nil && dir != f.Dir:
		return refuse(f.Path, dir)
	case err == nil && dir:
		return nil
	case fresh:
		if folders, err = makeFolders(t, h, f.Path); err != nil {
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
	if err := account(t, h, change, op.Quota); err != nil {
		return err
	}
	if !f.Dir {
		if err := ReferToContents(t, op); err != nil {
			return err
		}
	}
	if f.CreatedAt == 0 {
		f.CreatedAt = t.Now
	}
	if err := insertFile(t, h, f); err != nil {
		return err
	}
	switch {
	case f.Dir:
	case digest == "":
		h.Diff.Added++
	case digest != f.Digest:
		h.Diff.Changed++
	}
	if digest != f.Digest {
		if err := Free(t, &op.Freed, digest); err != nil {
			return err
		}
	}
	return logFile(t, h, store.EventFileWritten, fileEvent{Path: f.Path, MimeType: f.MimeType, Size: f.Size, IsDirectory: f.Dir})
}

// Free adds to freed the object of contents that nothing refers to any more.
func Free(t *txn.Tx, freed *[]string, digest string) error {
	object, err := freeContents(t, digest)
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
func makeFolders(t *txn.Tx, h *txn.Head, p string) (made int64, err error) {
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		var dir bool
		var digest string
		var size int64
		err := t.Row(t.Ctx, queries.FileBefore, []any{h.Key, p}, &dir, &digest, &size)
		switch {
		case err == nil && dir:
			return made, nil
		case err == nil:
			return made, refuse(p, dir)
		case !errors.Is(err, store.ErrNotFound):
			return made, err
		}
		if err := insertFile(t, h, &store.File{Path: p, Dir: true, CreatedAt: t.Now}); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}

func insertFile(t *txn.Tx, h *txn.Head, f *store.File) error {
	return t.Write(t.Ctx, queries.PutFile, h.Key, f.Path, path.Dir(f.Path), f.Dir, f.MimeType, f.Digest, f.Size,
		sqldb.NullJSON(f.Metadata), f.Width, f.Height, f.CreatedAt)
}

// Remove removes a file or an empty folder.
func Remove(t *txn.Tx, h *txn.Head, op *store.RemoveFile) error {
	op.Freed = nil
	var dir bool
	var digest string
	var size int64
	if err := t.Row(t.Ctx, queries.FileBefore, []any{h.Key, op.Path}, &dir, &digest, &size); err != nil {
		return fmt.Errorf("%s: %w", op.Path, err)
	}
	change := usage{files: -1, bytes: -size}
	if dir {
		change = usage{folders: -1}
		var one int
		filled, err := sqldb.Found(t.Row(t.Ctx, queries.FolderFilled, []any{h.Key, op.Path}, &one))
		if filled {
			return fmt.Errorf("%s is not empty: %w", op.Path, store.ErrFolder)
		}
		if err != nil {
			return err
		}
	}
	if err := t.Write(t.Ctx, queries.DeleteFile, h.Key, op.Path); err != nil {
		return err
	}
	if !dir {
		h.Diff.Removed++
	}
	if err := account(t, h, change, store.FileQuota{}); err != nil {
		return err
	}
	if err := Free(t, &op.Freed, digest); err != nil {
		return err
	}
	return logFile(t, h, store.EventFileDeleted, fileEvent{Path: op.Path, IsDirectory: dir})
}

// fileEvent is the data of the log entries of files.
type fileEvent struct {
	Path        string `json:"path"`
	MimeType    string `json:"mimeType,omitempty"`
	Size        int64  `json:"size,omitempty"`
	IsDirectory bool   `json:"isDirectory,omitempty"`
}

func logFile(t *txn.Tx, h *txn.Head, kind string, e fileEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = t.Log(h, store.Event{Type: kind, Data: data})
	return err
}

// File implements store.Store.
func (s Store) File(ctx context.Context, threadID, p string) (*store.File, error) {
	f, err := sqldb.ReadOne(ctx, s.DB.Readers, scanFile, queries.File, threadID, p)
	if err != nil {
		return nil, fmt.Errorf("file %s of thread %s: %w", p, threadID, err)
	}
	return f, nil
}

// Files implements store.Store.
func (s Store) Files(ctx context.Context, threadID, prefix string, recursive bool) ([]store.File, error) {
	query, args := queries.FilesDirect, []any{threadID, prefix}
	if recursive {
		from, to := below(prefix)
		query, args = queries.FilesBelow, []any{threadID, from, to}
	}
	files, err := sqldb.ReadList(ctx, s.DB.Readers, scanFile, query, args...)
	if err != nil {
		return nil, fmt.Errorf("files of thread %s: %w", threadID, err)
	}
	return files, nil
}

func scanFile(scan sqldb.Scanner) (*store.File, error) {
	var f store.File
	var metadata sqldb.Text
	if err := scan(&f.Path, &f.Dir, &f.MimeType, &f.Digest, &f.Size, &metadata, &f.Width, &f.Height, &f.CreatedAt); err != nil {
		return nil, err
	}
	f.Metadata = metadata.Raw()
	return &f, nil
}

// Store reads and sweeps files.
type Store struct{ DB *txn.DB }
