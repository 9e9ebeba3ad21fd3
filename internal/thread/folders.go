package thread

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// Mkdir makes a folder, with those above it; one that is there already is no error.
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

// Rmdir removes a folder that is empty (FIL-04). store.ErrNotFound when missing.
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

// ReadDir lists a folder, direct entries only; "/" for the root. store.ErrNotFound when missing.
func (st *State) ReadDir(ctx context.Context, path string) (*DirListing, error) {
	path, err := NormalizePath(path)
	if err != nil {
		return nil, err
	}
	if path != "/" {
		f, err := st.svc.store.File(ctx, st.id, path)
		if err != nil {
			return nil, pathError(path, err)
		}
		if !f.Dir {
			return nil, invalid("path", "%s is a file: name a folder", path)
		}
	}
	entries, err := st.ListFiles(ctx, path, false)
	if err != nil {
		return nil, err
	}
	return &DirListing{Path: path, Entries: entries}, nil
}

// ListFiles lists the files and folders below a folder, by path; direct ones only unless recursive. A
// folder that is not there has none.
func (st *State) ListFiles(ctx context.Context, prefix string, recursive bool) ([]FileRecord, error) {
	prefix, err := NormalizePath(prefix)
	if err != nil {
		return nil, err
	}
	files, err := st.svc.store.Files(ctx, st.id, prefix, recursive)
	if err != nil {
		return nil, err
	}
	records := make([]FileRecord, 0, len(files))
	for i := range files {
		records = append(records, *recordOf(&files[i]))
	}
	return records, nil
}

// FileStats tells how many files and folders the thread has, their bytes, and how much it may have.
func (st *State) FileStats(ctx context.Context) (*FileStats, error) {
	u, err := st.svc.store.FileUsage(ctx, st.id)
	if err != nil {
		return nil, err
	}
	q := u.Quota(st.svc.quota)
	return &FileStats{FileCount: u.Files, DirectoryCount: u.Folders, TotalSize: u.Bytes, MaxSize: q.Bytes, MaxEntries: q.Files}, nil
}

// SetFileQuota bounds what the thread has in files; nil leaves a bound to the manager, 0 takes it away. What is
// there already stays (FIL-08).
func (st *State) SetFileQuota(ctx context.Context, bytes, files *int64) error {
	for field, n := range map[string]*int64{"fileQuota.bytes": bytes, "fileQuota.files": files} {
		if n != nil && *n < 0 {
			return invalid(field, "give 0 for no bound, or a positive number")
		}
	}
	return st.Apply(ctx, &store.SetFileQuota{Bytes: bytes, Files: files})
}
