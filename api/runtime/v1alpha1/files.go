package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FileRecord is a file or a folder of a thread.
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
// up; the cause's field is bytes or files.
const CauseQuotaExceeded metav1.CauseType = "QuotaExceeded"

// KindFileList is the kind of a FileList.
const KindFileList = "FileList"

// FileStats sums up the files of a thread.
type FileStats struct {
	metav1.TypeMeta `json:",inline"`
	// FileCount is how many files there are.
	FileCount int64 `json:"fileCount"`
	// DirectoryCount is how many folders there are.
	DirectoryCount int64 `json:"directoryCount"`
	// TotalSize of all files in bytes.
	TotalSize int64 `json:"totalSize"`
	// MaxSize is the quota of TotalSize; absent when there is none.
	MaxSize int64 `json:"maxSize,omitempty"`
	// MaxEntries is the quota of files and folders together; absent when there is none.
	MaxEntries int64 `json:"maxEntries,omitempty"`
}

// KindFileStats is the kind of FileStats.
const KindFileStats = "FileStats"

// FileMatches are the files whose paths match a glob, by path.
type FileMatches struct {
	metav1.TypeMeta `json:",inline"`
	// Paths of the files.
	Paths []string `json:"paths"`
	// Truncated tells that there are more.
	Truncated bool `json:"truncated"`
}

// KindFileMatches is the kind of FileMatches.
const KindFileMatches = "FileMatches"

// GrepList is what a search in text files found, by path.
type GrepList struct {
	metav1.TypeMeta `json:",inline"`
	// Results by file.
	Results []GrepResult `json:"results"`
	// Truncated tells that there are more.
	Truncated bool `json:"truncated"`
}

// KindGrepList is the kind of a GrepList.
const KindGrepList = "GrepList"

// GrepResult is the matching lines of one file.
type GrepResult struct {
	// Path of the file.
	Path string `json:"path"`
	// Matches in their order.
	Matches []GrepMatch `json:"matches"`
	// Truncated tells that the search was cut off in this file.
	Truncated bool `json:"truncated,omitempty"`
}

// GrepMatch is one line.
type GrepMatch struct {
	// Line counts from 1.
	Line int `json:"line"`
	// Content of the line, its beginning when it is long.
	Content string `json:"content"`
}

// FileChunkBytes is the size of every chunk of a file but the last.
const FileChunkBytes = 256 << 10

// FileChunk is a piece of a file that is streamed.
type FileChunk struct {
	// Data of the chunk, base64 in JSON.
	Data []byte `json:"data"`
	// Index counts from 0.
	Index int64 `json:"index"`
	// TotalChunks of the file.
	TotalChunks int64 `json:"totalChunks"`
	// IsLast is true for the last one.
	IsLast bool `json:"isLast"`
}

// FilePart tells that a part of an upload has arrived.
type FilePart struct {
	metav1.TypeMeta `json:",inline"`
	// Upload is the sender's name for the upload.
	Upload string `json:"upload"`
	// Part counts from 0.
	Part int `json:"part"`
	// Size of the part in bytes.
	Size int64 `json:"size"`
}

// KindFilePart is the kind of a FilePart.
const KindFilePart = "FilePart"
