package thread

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
)

// ChunkSize is the number of bytes of a file in one chunk of a stream (FIL-03).
const ChunkSize = 256 << 10

// FileRecord describes a file or a folder (FIL-02).
type FileRecord struct {
	Path        string          `json:"path"`
	Name        string          `json:"name"`
	MimeType    string          `json:"mimeType"`
	Storage     string          `json:"storage"`
	Size        int64           `json:"size"`
	IsDirectory bool            `json:"isDirectory"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Width       int             `json:"width,omitempty"`
	Height      int             `json:"height,omitempty"`
	CreatedAt   int64           `json:"createdAt"` // microseconds
	IsChunked   bool            `json:"isChunked"`
	ChunkCount  int64           `json:"chunkCount"`
}

// Bytes returns about how many bytes of memory the record takes.
func (r *FileRecord) Bytes() int64 {
	return int64(512 + len(r.Path) + len(r.Name) + len(r.MimeType) + len(r.Metadata))
}

// DirListing lists the direct entries of a folder, by path.
type DirListing struct {
	Path    string       `json:"path"`
	Entries []FileRecord `json:"entries"`
}

// FileStats sums up a thread's files.
type FileStats struct {
	FileCount      int64 `json:"fileCount"`
	DirectoryCount int64 `json:"directoryCount"`
	TotalSize      int64 `json:"totalSize"` // bytes
	// MaxSize and MaxEntries are the thread's quota (FIL-08), in bytes, and in files and folders; 0 for none.
	MaxSize    int64 `json:"maxSize,omitempty"`
	MaxEntries int64 `json:"maxEntries,omitempty"`
}

// FindResult lists the paths that a glob matches; Truncated when there are more (FIL-05).
type FindResult struct {
	Paths     []string `json:"paths"`
	Truncated bool     `json:"truncated"`
}

// GrepMatch is a matching line. Lines count from 1.
type GrepMatch struct {
	Line    int    `json:"line"`
	Content string `json:"content"`
}

// GrepResult holds the matching lines of one file. Truncated means that the search was cut off in or after the file.
type GrepResult struct {
	Path      string      `json:"path"`
	Matches   []GrepMatch `json:"matches"`
	Truncated bool        `json:"truncated,omitempty"`
}

// GrepPage is the result of a search. Truncated means that there is more (FIL-05).
type GrepPage struct {
	Results   []GrepResult `json:"results"`
	Truncated bool         `json:"truncated"`
}

// storageName is the same for all files: a thread must not see where its bytes are stored (THR-18).
const storageName = "local"

func recordOf(f *store.File) *FileRecord {
	r := &FileRecord{
		Path: f.Path, Name: baseName(f.Path), MimeType: f.MimeType, Storage: storageName, Size: f.Size,
		IsDirectory: f.Dir, Metadata: f.Metadata, Width: f.Width, Height: f.Height, CreatedAt: f.CreatedAt,
	}
	if !f.Dir {
		r.ChunkCount = max(1, (f.Size+ChunkSize-1)/ChunkSize)
		r.IsChunked = r.ChunkCount > 1
	}
	return r
}
