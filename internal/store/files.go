package store

import (
	"errors"
	"fmt"
	"time"
)

// MaxUploadAge is how long after its end an upload may still become a file. Sweeps leave objects without
// contents alone for much longer, so that they never remove what a transaction is about to refer to.
const MaxUploadAge = time.Hour

// Errors of files that callers test with errors.Is.
var (
	// ErrNoContents: the bucket has no object with these contents that a file could refer to: put them there
	// and try again.
	ErrNoContents = errors.New("the contents are not in the bucket")
	// ErrNoSpace: the disk of the bucket is full; it is also ErrUnavailable.
	ErrNoSpace = fmt.Errorf("no space is left: %w", ErrUnavailable)
	// ErrQuota: a thread has as much in files as it may have; the error is a *QuotaError.
	ErrQuota = errors.New("the thread's quota of files is used up")
)

// FileQuota bounds what a thread has in files; 0 is without bound.
type FileQuota struct {
	Bytes int64 // of all files together, each counted whole however many files share its contents
	Files int64 // files and folders
}

// FileUsage is what a thread has in files.
type FileUsage struct {
	Files, Folders, Bytes int64
	// MaxBytes and MaxFiles are the thread's own bounds; nil leaves them to the manager, 0 is without bound.
	MaxBytes, MaxFiles *int64
}

// Quota is what binds the thread: its own bounds, else those given.
func (u *FileUsage) Quota(def FileQuota) FileQuota {
	if u.MaxBytes != nil {
		def.Bytes = *u.MaxBytes
	}
	if u.MaxFiles != nil {
		def.Files = *u.MaxFiles
	}
	return def
}

// QuotaError says which bound a write would have broken (FIL-08).
type QuotaError struct {
	Resource string // "bytes" or "files"
	Limit    int64
	Wanted   int64 // with the write
}

// Error implements error.
func (e *QuotaError) Error() string {
	if e.Resource == "bytes" {
		return fmt.Sprintf("the thread's files would have %d bytes, its quota is %d: delete files first, or raise spec.fileQuota of the Thread", e.Wanted, e.Limit)
	}
	return fmt.Sprintf("the thread would have %d files and folders, its quota is %d: delete some first, or raise spec.fileQuota of the Thread", e.Wanted, e.Limit)
}

// Is makes errors.Is(err, ErrQuota) true.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }
