package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

const (
	defaultReadBytes = 64 << 10
	maxReadBytes     = 256 << 10
	maxListed        = 500
)

type fileEntry struct {
	Path        string `json:"path"`
	Size        int64  `json:"size"`
	MimeType    string `json:"mimeType,omitempty"`
	IsDirectory bool   `json:"isDirectory,omitempty"`
}

func entryOf(r *thread.FileRecord) fileEntry {
	return fileEntry{Path: r.Path, Size: r.Size, MimeType: r.MimeType, IsDirectory: r.IsDirectory}
}

// files returns the family for the files of the thread.
func files(h *tool.Host) []tool.Tool {
	return []tool.Tool{
		newTool("read_file", "Reads a text file of this conversation.",
			`{"type":"object","required":["path"],"additionalProperties":false,"properties":{
				"path":{"type":"string","description":"Path of the file, such as /notes.txt"},
				"offset":{"type":"integer","minimum":0,"description":"Byte to start at; 0 by default"},
				"maxBytes":{"type":"integer","minimum":1,"maximum":262144,"description":"How much to read; 65536 by default"}}}`,
			func(ctx context.Context, _ tool.Call, a readArgs) tool.Result { return readFile(ctx, h.State, a) }),
		newTool("write_file", "Writes a text file of this conversation, in place of one that is there already.",
			`{"type":"object","required":["path","content"],"additionalProperties":false,"properties":{
				"path":{"type":"string","description":"Path of the file, such as /notes.txt"},
				"content":{"type":"string","description":"The whole text"},
				"mimeType":{"type":"string","description":"Told from the path's ending when left out"}}}`,
			func(ctx context.Context, _ tool.Call, a writeArgs) tool.Result { return writeFile(ctx, h.State, a) }),
		newTool("list_files", "Lists files of this conversation.",
			`{"type":"object","additionalProperties":false,"properties":{
				"prefix":{"type":"string","description":"Folder to list; / by default"},
				"recursive":{"type":"boolean","description":"Also what is in its folders; true by default"}}}`,
			func(ctx context.Context, _ tool.Call, a listArgs) tool.Result { return listFiles(ctx, h.State, a) }),
		newTool("delete_file", "Deletes a file of this conversation.",
			`{"type":"object","required":["path"],"additionalProperties":false,"properties":{
				"path":{"type":"string","description":"Path of the file"}}}`,
			func(ctx context.Context, _ tool.Call, a readArgs) tool.Result {
				return deleteFile(ctx, h.State, a.Path)
			}),
		newTool("find_files", "Finds files of this conversation by a glob such as *.csv or /data/**; at most 100.",
			`{"type":"object","required":["pattern"],"additionalProperties":false,"properties":{
				"pattern":{"type":"string","description":"*, ** and ? are wildcards; without a leading slash it matches in any folder"}}}`,
			func(ctx context.Context, _ tool.Call, a patternArgs) tool.Result {
				found, err := h.State.FindFiles(ctx, a.Pattern)
				if err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(found)
			}),
		newTool("grep_files", "Searches the text files of this conversation for lines that match a regular expression; at most 100 lines.",
			`{"type":"object","required":["pattern"],"additionalProperties":false,"properties":{
				"pattern":{"type":"string","description":"Regular expression in RE2 syntax"}}}`,
			func(ctx context.Context, _ tool.Call, a patternArgs) tool.Result {
				found, err := h.State.GrepFiles(ctx, a.Pattern)
				if err != nil {
					return failure(err)
				}
				return tool.SuccessJSON(found)
			}),
	}
}

type readArgs struct {
	Path     string `json:"path"`
	Offset   int64  `json:"offset"`
	MaxBytes int64  `json:"maxBytes"`
}

type writeArgs struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	MimeType string `json:"mimeType"`
}

type listArgs struct {
	Prefix    string `json:"prefix"`
	Recursive *bool  `json:"recursive"`
}

type patternArgs struct {
	Pattern string `json:"pattern"`
}

func readFile(ctx context.Context, st *thread.State, a readArgs) tool.Result {
	rc, rec, err := st.OpenFile(ctx, a.Path)
	if err != nil {
		return failure(err)
	}
	if rc == nil {
		return tool.Failure(fmt.Sprintf("there is no file %s: list_files shows which there are", a.Path))
	}
	defer func() { _ = rc.Close() }()
	if a.MaxBytes == 0 {
		a.MaxBytes = defaultReadBytes
	}
	if a.Offset > 0 {
		if _, err := io.CopyN(io.Discard, rc, a.Offset); errors.Is(err, io.EOF) {
			return tool.Failure(fmt.Sprintf("%s has %d bytes, offset %d is behind its end", rec.Path, rec.Size, a.Offset))
		} else if err != nil {
			return failure(err)
		}
	}
	data, err := io.ReadAll(io.LimitReader(rc, a.MaxBytes))
	if err != nil {
		return failure(err)
	}
	end := a.Offset + int64(len(data))
	// Do not cut a character in two. The rest comes with the next call.
	if end < rec.Size {
		for i := 0; i < utf8.UTFMax && len(data) > 0 && !utf8.Valid(data[max(0, len(data)-utf8.UTFMax):]); i++ {
			data, end = data[:len(data)-1], end-1
		}
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return tool.Failure(fmt.Sprintf("%s is not a text file (%s, %d bytes): use code to work with it", rec.Path, rec.MimeType, rec.Size))
	}
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	if end < rec.Size {
		text += fmt.Sprintf("\n[%d of %d bytes; read on with offset %d]", len(data), rec.Size, end)
	}
	return tool.Success(text)
}

func writeFile(ctx context.Context, st *thread.State, a writeArgs) tool.Result {
	rec, err := st.WriteFile(ctx, a.Path, strings.NewReader(a.Content), thread.WriteFileOptions{MimeType: a.MimeType})
	if err != nil {
		return failure(err)
	}
	return tool.SuccessJSON(entryOf(rec))
}

func listFiles(ctx context.Context, st *thread.State, a listArgs) tool.Result {
	if a.Prefix == "" {
		a.Prefix = "/"
	}
	recs, err := st.ListFiles(ctx, a.Prefix, a.Recursive == nil || *a.Recursive)
	if err != nil {
		return failure(err)
	}
	out := struct {
		Files     []fileEntry `json:"files"`
		Truncated bool        `json:"truncated,omitempty"`
	}{Files: []fileEntry{}}
	for i := range recs {
		if len(out.Files) == maxListed {
			out.Truncated = true
			break
		}
		out.Files = append(out.Files, entryOf(&recs[i]))
	}
	return tool.SuccessJSON(out)
}

func deleteFile(ctx context.Context, st *thread.State, path string) tool.Result {
	err := st.Unlink(ctx, path)
	if errors.Is(err, store.ErrNotFound) {
		return tool.SuccessJSON(map[string]any{"deleted": false, "path": path})
	}
	if err != nil {
		return failure(err)
	}
	return tool.SuccessJSON(map[string]any{"deleted": true, "path": path})
}
