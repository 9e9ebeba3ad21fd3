package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FileRecord is a file or a folder of a thread (SPEC FIL-02).
type FileRecord struct {
	// Path, normalised, with a leading slash.
	Path string `json:"path"`
	// Name is the last part of the path.
	Name string `json:"name"`
	// MimeType of a file.
	MimeType string `json:"mimeType,omitempty"`
	// Storage tells how the bytes are kept; for information only.
	Storage string `json:"storage,omitempty"`
	// Size in bytes, 0 for a folder.
	Size int64 `json:"size"`
	// IsDirectory is true for a folder.
	IsDirectory bool `json:"isDirectory"`
	// Metadata of whoever wrote it.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Width of an image in pixels.
	Width int `json:"width,omitempty"`
	// Height of an image in pixels.
	Height int `json:"height,omitempty"`
	// CreatedAt in microseconds.
	CreatedAt int64 `json:"createdAt"`
	// IsChunked tells that the file is read in chunks.
	IsChunked bool `json:"isChunked,omitempty"`
	// ChunkCount of a chunked file.
	ChunkCount int64 `json:"chunkCount,omitempty"`
}

// FileList is a list of files, by path.
type FileList struct {
	metav1.TypeMeta `json:",inline"`
	// Files of the page.
	Files []FileRecord `json:"files"`
	// HasMore tells that there are files beyond this page: ask again with a larger offset, or a narrower
	// prefix or glob.
	HasMore bool `json:"hasMore"`
}

// CauseQuotaExceeded is the type of the cause of a Forbidden that says that the thread's quota of files is used
// up (SPEC FIL-08); the cause's field is bytes or files.
const CauseQuotaExceeded metav1.CauseType = "QuotaExceeded"

// KindFileList is the kind of a FileList.
const KindFileList = "FileList"
