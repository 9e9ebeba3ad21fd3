package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// File is a file or a folder of a thread (FIL-02). The bucket stores its bytes under Digest.
type File struct {
	Path      string // normalised, starts with "/"
	MimeType  string
	Digest    string // SHA-256 in hex; "" for a folder
	Size      int64
	Dir       bool
	Metadata  json.RawMessage
	Width     int
	Height    int
	CreatedAt int64
}

// Bytes returns about how many bytes of memory the file's record takes.
func (f *File) Bytes() int64 {
	return int64(512 + 2*len(f.Path) + len(f.MimeType) + len(f.Digest) + len(f.Metadata))
}

// FileQuery selects a page of the files and folders below a folder, by path.
type FileQuery struct {
	Folder    string // normalised; "/" for all
	Recursive bool   // not direct entries only
	After     string // only paths behind this one
	Limit     int    // 100 when 0
	Offset    int
	// MaxBytes ends the page before its files take more bytes of memory, but behind the first one; 0 for no such bound.
	MaxBytes int64
	Bare     bool // leaves out metadata
}

// MaxUploadAge is how long after it ends an upload may still become a file. Sweeps wait much longer before they remove
// objects without contents, so they never remove an object that a transaction is about to refer to.
const MaxUploadAge = time.Hour

// Errors of files that callers test with errors.Is.
var (
	// ErrNoContents means that the bucket has no object with these contents that a file could refer to. Upload the
	// contents and try again.
	ErrNoContents = errors.New("the contents are not in the bucket")
	// ErrNoSpace means that the bucket's disk is full. It also matches ErrUnavailable.
	ErrNoSpace = fmt.Errorf("no space is left: %w", ErrUnavailable)
	// ErrQuota means that a write would exceed the thread's file quota. The error is a *QuotaError.
	ErrQuota = errors.New("the thread's quota of files is used up")
)

// FileQuota limits the files of a thread. 0 means no limit.
type FileQuota struct {
	Bytes int64 // of all files; a file counts in full even when others share its contents
	Files int64 // files and folders
}

// FileUsage is what the files of a thread use.
type FileUsage struct {
	Files, Folders, Bytes int64
	// MaxBytes and MaxFiles are the thread's own limits. nil means the manager's limit applies, 0 means no limit.
	MaxBytes, MaxFiles *int64
}

// Quota returns the limits that apply to the thread: its own, and those of def where it has none.
func (u *FileUsage) Quota(def FileQuota) FileQuota {
	if u.MaxBytes != nil {
		def.Bytes = *u.MaxBytes
	}
	if u.MaxFiles != nil {
		def.Files = *u.MaxFiles
	}
	return def
}

// QuotaError says which limit a write would exceed (FIL-08).
type QuotaError struct {
	Resource string // "bytes" or "files"
	Limit    int64
	Wanted   int64 // the total with the write
}

// Error implements error.
func (e *QuotaError) Error() string {
	if e.Resource == "bytes" {
		return fmt.Sprintf("the thread's files would have %d bytes, its quota is %d: delete files first, or raise spec.fileQuota of the Thread", e.Wanted, e.Limit)
	}
	return fmt.Sprintf("the thread would have %d files and folders, its quota is %d: delete some first, or raise spec.fileQuota of the Thread", e.Wanted, e.Limit)
}

// Is reports whether target is ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }
