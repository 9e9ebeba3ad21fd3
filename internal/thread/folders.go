package thread

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// Mkdir creates a folder and its missing parents. An existing folder is no error.
func (st *State) Mkdir(ctx context.Context, path string) (*FileRecord, error) {
	path, err := filePath(path)
	if err != nil {
		return nil, err
	}
	if err := st.Apply(ctx, &store.PutFile{File: store.File{Path: path, Dir: true, CreatedAt: st.svc.now()}, Quota: st.svc.quota}); err != nil {
		return nil, pathError(path, err)
	}
	return st.StatFile(ctx, path)
}

// Rmdir removes an empty folder (FIL-04). It returns store.ErrNotFound when the folder does not exist.
func (st *State) Rmdir(ctx context.Context, path string) error {
	path, err := filePath(path)
	if err != nil {
		return err
	}
	f, err := st.svc.store.File(ctx, st.id, path)
	if err != nil {
		return pathError(path, err)
	}
	if !f.Dir {
		return invalid("path", "%s is a file: unlink it", path)
	}
	err = st.Apply(ctx, &store.RemoveFile{Path: path})
	if errors.Is(err, store.ErrFolder) {
		return &InvalidError{Field: "path", Message: path + " is not empty: remove what is in it first", cause: err}
	}
	return pathError(path, err)
}

// ReadDir lists the direct entries of a folder; "/" is the root. It returns store.ErrNotFound when the folder does not
// exist.
func (st *State) ReadDir(ctx context.Context, path string) (*DirListing, error) {
	path, err := st.folder(ctx, path)
	if err != nil {
		return nil, err
	}
	entries, err := st.ListFiles(ctx, path, false)
	if err != nil {
		return nil, err
	}
	return &DirListing{Path: path, Entries: entries}, nil
}

// folder returns the normalised path of a folder that must exist.
func (st *State) folder(ctx context.Context, path string) (string, error) {
	path, err := NormalizePath(path)
	if err != nil || path == "/" {
		return path, err
	}
	f, err := st.svc.store.File(ctx, st.id, path)
	if err != nil {
		return "", pathError(path, err)
	}
	if !f.Dir {
		return "", invalid("path", "%s is a file: name a folder", path)
	}
	return path, nil
}

// ReadDirPage lists a page of the direct entries of a folder, as ReadDir does. more reports that others follow.
func (st *State) ReadDirPage(ctx context.Context, path string, q store.FileQuery) (records []FileRecord, more bool, err error) {
	if q.Folder, err = st.folder(ctx, path); err != nil {
		return nil, false, err
	}
	q.Recursive = false
	return st.FilesPage(ctx, q)
}

// FilesPage lists a page of the files and folders below a folder, as ListFiles does. more reports that others follow.
func (st *State) FilesPage(ctx context.Context, q store.FileQuery) (records []FileRecord, more bool, err error) {
	if q.Folder, err = NormalizePath(q.Folder); err != nil {
		return nil, false, err
	}
	files, more, err := st.svc.store.FilesPage(ctx, st.id, q)
	if err != nil {
		return nil, false, err
	}
	records = make([]FileRecord, len(files))
	for i := range files {
		records[i] = *recordOf(&files[i])
	}
	return records, more, nil
}

// ListFiles lists the files and folders below a folder, by path; direct entries only unless recursive. A folder that
// does not exist has none. The memory of the list is drawn from the account of ctx.
func (st *State) ListFiles(ctx context.Context, prefix string, recursive bool) ([]FileRecord, error) {
	prefix, err := NormalizePath(prefix)
	if err != nil {
		return nil, err
	}
	records := []FileRecord{}
	q := store.FileQuery{Folder: prefix, Recursive: recursive, Limit: listedAtOnce, MaxBytes: listedBytes}
	for {
		adjust, err := membudget.Reserve(ctx, listedBytes)
		if err != nil {
			return nil, err
		}
		page, more, err := st.FilesPage(ctx, q)
		if err != nil {
			return nil, err
		}
		var size int64
		for i := range page {
			size += page[i].Bytes()
		}
		adjust(size)
		records = append(records, page...)
		if !more {
			return records, nil
		}
		q.After = page[len(page)-1].Path
	}
}

// listedAtOnce and listedBytes bound what ListFiles reads at once.
const (
	listedAtOnce = 1000
	listedBytes  = 2 << 20
)

// FileStats returns the number of files and folders of the thread, their bytes, and the quota.
func (st *State) FileStats(ctx context.Context) (*FileStats, error) {
	u, err := st.svc.store.FileUsage(ctx, st.id)
	if err != nil {
		return nil, err
	}
	q := u.Quota(st.svc.quota)
	return &FileStats{FileCount: u.Files, DirectoryCount: u.Folders, TotalSize: u.Bytes, MaxSize: q.Bytes, MaxEntries: q.Files}, nil
}

// SetFileQuota sets the file quota of the thread. nil means the manager's limit applies, 0 means no limit. Existing
// files stay (FIL-08).
func (st *State) SetFileQuota(ctx context.Context, bytes, files *int64) error {
	for field, n := range map[string]*int64{"fileQuota.bytes": bytes, "fileQuota.files": files} {
		if n != nil && *n < 0 {
			return invalid(field, "use 0 for no limit, or a positive number")
		}
	}
	return st.Apply(ctx, &store.SetFileQuota{Bytes: bytes, Files: files})
}
