package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FileRecord is a file or a folder of a thread.
type FileRecord struct {
	// Path is normalised, with a leading slash.
	Path string `json:"path"`
	// Name is the last part of the path.
	Name string `json:"name"`
	// MimeType is the media type of a file.
	MimeType string `json:"mimeType,omitempty"`
	// Storage says how the bytes are stored; for information only.
	Storage string `json:"storage,omitempty"`
	// Size is in bytes, 0 for a folder.
	Size int64 `json:"size"`
	// IsDirectory is true for a folder.
	IsDirectory bool `json:"isDirectory"`
	// Metadata is set by the writer.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Width is the width of an image in pixels.
	Width int `json:"width,omitempty"`
	// Height is the height of an image in pixels.
	Height int `json:"height,omitempty"`
	// CreatedAt is in microseconds.
	CreatedAt int64 `json:"createdAt"`
	// IsChunked is true when the file is read in chunks.
	IsChunked bool `json:"isChunked,omitempty"`
	// ChunkCount is the number of chunks of a chunked file.
	ChunkCount int64 `json:"chunkCount,omitempty"`
}

// FileList is a list of files, by path.
type FileList struct {
	metav1.TypeMeta `json:",inline"`
	// Files is the page.
	Files []FileRecord `json:"files"`
	// HasMore reports whether more files follow: request them with a larger offset, or use a narrower prefix or glob.
	HasMore bool `json:"hasMore"`
}

// CauseQuotaExceeded is the type of the cause of a Forbidden that means that a quota is used up: the thread's of files, that of
// ScheduledEffects, or one of the namespace. The cause's field is bytes, files or effects, or the name in spec.hard of a ThreadQuota.
const CauseQuotaExceeded metav1.CauseType = "QuotaExceeded"

// CauseFlowControl is the type of the cause of a TooManyRequests that means that a user, a namespace or an address makes more
// requests than its share.
const CauseFlowControl metav1.CauseType = "FlowControl"

// CauseMemory is the type of a cause. With TooManyRequests, the namespace takes as much of the manager's memory as it may. With
// RequestEntityTooLarge, a request or its answer needs more than that.
const CauseMemory metav1.CauseType = "Memory"

// KindFileList is the kind of a FileList.
const KindFileList = "FileList"

// FileStats sums up the files of a thread.
type FileStats struct {
	metav1.TypeMeta `json:",inline"`
	// FileCount is the number of files.
	FileCount int64 `json:"fileCount"`
	// DirectoryCount is the number of folders.
	DirectoryCount int64 `json:"directoryCount"`
	// TotalSize is the size of all files in bytes.
	TotalSize int64 `json:"totalSize"`
	// MaxSize is the quota for TotalSize. It is absent when there is none.
	MaxSize int64 `json:"maxSize,omitempty"`
	// MaxEntries is the quota for files and folders together. It is absent when there is none.
	MaxEntries int64 `json:"maxEntries,omitempty"`
}

// KindFileStats is the kind of FileStats.
const KindFileStats = "FileStats"

// FileMatches are the files whose paths match a glob, by path.
type FileMatches struct {
	metav1.TypeMeta `json:",inline"`
	// Paths lists the paths of the files.
	Paths []string `json:"paths"`
	// Truncated is true when there are more.
	Truncated bool `json:"truncated"`
}

// KindFileMatches is the kind of FileMatches.
const KindFileMatches = "FileMatches"

// GrepList is what a search in text files found, by path.
type GrepList struct {
	metav1.TypeMeta `json:",inline"`
	// Results has one entry for each file.
	Results []GrepResult `json:"results"`
	// Truncated is true when there are more.
	Truncated bool `json:"truncated"`
}

// KindGrepList is the kind of a GrepList.
const KindGrepList = "GrepList"

// GrepResult is the matching lines of one file.
type GrepResult struct {
	// Path is the path of the file.
	Path string `json:"path"`
	// Matches lists the matching lines in the order of the file.
	Matches []GrepMatch `json:"matches"`
	// Truncated is true when the search stopped within this file.
	Truncated bool `json:"truncated,omitempty"`
}

// GrepMatch is one line.
type GrepMatch struct {
	// Line is the line number, from 1.
	Line int `json:"line"`
	// Content is the line, or its beginning when it is long.
	Content string `json:"content"`
}

// FileChunkBytes is the size of every chunk of a file except the last.
const FileChunkBytes = 256 << 10

// FileChunk is a piece of a streamed file.
type FileChunk struct {
	// Data is the content of the chunk, base64 in JSON.
	Data []byte `json:"data"`
	// Index is the number of the chunk, from 0.
	Index int64 `json:"index"`
	// TotalChunks is the number of chunks of the file.
	TotalChunks int64 `json:"totalChunks"`
	// IsLast is true for the last chunk.
	IsLast bool `json:"isLast"`
}

// FilePart confirms that a part of an upload has arrived.
type FilePart struct {
	metav1.TypeMeta `json:",inline"`
	// Upload is the sender's name for the upload.
	Upload string `json:"upload"`
	// Part is the number of the part, from 0.
	Part int `json:"part"`
	// Size is the size of the part in bytes.
	Size int64 `json:"size"`
}

// KindFilePart is the kind of a FilePart.
const KindFilePart = "FilePart"
