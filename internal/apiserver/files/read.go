package files

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// List answers GET files: a page of files, or what one of stats, find, grep and dir requests.
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	asked := 0
	for _, key := range []string{"stats", "find", "grep", "dir", "glob"} {
		if q.Has(key) {
			asked++
		}
	}
	if asked > 1 {
		q.Bad("stats", "set only one of stats, find, grep, dir and glob")
	}
	switch {
	case q.Has("stats"):
		return h.stats(c, q)
	case q.Has("find"):
		return h.find(c, q)
	case q.Has("grep"):
		return h.grep(c, q)
	case q.Has("dir"):
		return h.readDir(c, q)
	}
	return h.page(c, q)
}

func (h *Handler) stats(c *call.Call, q *call.Query) error {
	_ = q.Flag("stats", false)
	if err := q.Check(); err != nil {
		return err
	}
	st, err := c.Thread.FileStats(c.Context())
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.FileStats{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileStats), FileCount: st.FileCount, DirectoryCount: st.DirectoryCount,
		TotalSize: st.TotalSize, MaxSize: st.MaxSize, MaxEntries: st.MaxEntries,
	})
}

func (h *Handler) find(c *call.Call, q *call.Query) error {
	pattern, limit := q.Text("find"), q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	if err := q.Check(); err != nil {
		return err
	}
	found, err := c.Thread.FindSome(c.Context(), pattern, limit)
	if err != nil {
		return parameter(err, "find")
	}
	return c.WriteJSON(http.StatusOK, runtimev1.FileMatches{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileMatches), Paths: found.Paths, Truncated: found.Truncated,
	})
}

func (h *Handler) grep(c *call.Call, q *call.Query) error {
	pattern, limit := q.Text("grep"), q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	if err := q.Check(); err != nil {
		return err
	}
	found, err := c.Thread.GrepSome(c.Context(), pattern, limit)
	if err != nil {
		return parameter(err, "grep")
	}
	out := runtimev1.GrepList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindGrepList), Results: []runtimev1.GrepResult{}, Truncated: found.Truncated}
	for _, r := range found.Results {
		result := runtimev1.GrepResult{Path: r.Path, Truncated: r.Truncated}
		for _, m := range r.Matches {
			result.Matches = append(result.Matches, runtimev1.GrepMatch(m))
		}
		out.Results = append(out.Results, result)
	}
	return c.WriteJSON(http.StatusOK, out)
}

// parameter names the parameter in an error about the pattern that it has.
func parameter(err error, name string) error {
	var invalid *thread.InvalidError
	if errors.As(err, &invalid) && invalid.Field == "pattern" {
		return &thread.InvalidError{Field: name, Message: invalid.Message}
	}
	return err
}

// readDir answers GET files?dir=: the content of one folder, which must exist.
func (h *Handler) readDir(c *call.Call, q *call.Query) error {
	limit, offset := q.Page()
	dir := q.Text("dir")
	if err := q.Check(); err != nil {
		return err
	}
	err := writePage(c, func() ([]thread.FileRecord, bool, error) {
		return c.Thread.ReadDirPage(c.Context(), dir, store.FileQuery{Limit: limit, Offset: offset, MaxBytes: maxPageBytes})
	})
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no folder %q: GET files?recursive=true lists what there is", c.Name, dir)
	}
	return err
}

func (h *Handler) page(c *call.Call, q *call.Query) (err error) {
	limit, offset := q.Page()
	prefix, recursive, glob := q.Text("prefix"), q.Flag("recursive", false), q.Text("glob")
	if glob != "" && (prefix != "" || recursive) {
		q.Bad("glob", "set either glob, or prefix and recursive: a glob may start with a folder, such as /reports/**")
	}
	q.Know("stats", "find", "grep", "dir")
	if err := q.Check(); err != nil {
		return err
	}
	return writePage(c, func() ([]thread.FileRecord, bool, error) {
		if glob != "" {
			return globFiles(c, glob, limit, offset)
		}
		return c.Thread.FilesPage(c.Context(), store.FileQuery{Folder: prefix, Recursive: recursive, Limit: limit, Offset: offset, MaxBytes: maxPageBytes})
	})
}

// maxPageBytes bounds a page: a file may have a mebibyte of metadata, and a page a thousand files.
const maxPageBytes = 8 << 20

// writePage draws memory for a page, reads the page, and answers with it.
func writePage(c *call.Call, read func() (page []thread.FileRecord, more bool, err error)) error {
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := read()
	if err != nil {
		return err
	}
	var size int64
	list := runtimev1.FileList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileList), Files: make([]runtimev1.FileRecord, len(page)), HasMore: more}
	for i := range page {
		size += page[i].Bytes()
		list.Files[i] = fileOf(&page[i])
	}
	adjust(size)
	return c.WriteJSON(http.StatusOK, list)
}

// globFiles returns a page of the records of the files that match, of at most as many as one search finds (FIL-05).
func globFiles(c *call.Call, glob string, limit, offset int) (page []thread.FileRecord, more bool, err error) {
	found, err := c.Thread.FindFiles(c.Context(), glob)
	if err != nil {
		return nil, false, err
	}
	left := int64(maxPageBytes)
	for _, p := range found.Paths[min(offset, len(found.Paths)):] {
		if len(page) == limit {
			return page, true, nil
		}
		rec, err := c.Thread.StatFile(c.Context(), p)
		if err != nil {
			return nil, false, err
		}
		if rec == nil { // it was removed meanwhile
			continue
		}
		if left -= rec.Bytes(); left < 0 && len(page) > 0 {
			return page, true, nil
		}
		page = append(page, *rec)
	}
	return page, found.Truncated, nil
}

// stat answers GET files/{path}?stat=true: the record of a file or a folder.
func (h *Handler) stat(c *call.Call) error {
	rec, err := c.Thread.StatFile(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	if rec == nil {
		return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
	}
	return c.WriteJSON(http.StatusOK, fileOf(rec))
}

// thumbnail answers GET files/{path}?thumbnail=true: a small image, or 204 when the file is not an image (FIL-06).
func (h *Handler) thumbnail(c *call.Call, o thread.ThumbnailOptions) error {
	ctx := c.Context()
	t, err := c.Thread.Thumbnail(ctx, c.Rest(), o)
	if err != nil {
		return err
	}
	if t == nil {
		rec, err := c.Thread.StatFile(ctx, c.Rest())
		if err == nil && rec == nil {
			return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
		}
		if err == nil {
			c.Response.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	header := c.Response.Header()
	header.Set("Content-Type", t.MimeType)
	call.SetDownloadHeaders(header, c.Rest())
	header.Set("Content-Length", strconv.Itoa(len(t.Data)))
	_, _ = c.Response.Write(t.Data)
	return nil
}

// stream answers GET files/{path}?chunked=true: the file as lines of JSON, one chunk each (FIL-03). An error
// closes the connection before the chunk that is marked as the last, so that the client notices it.
func (h *Handler) stream(c *call.Call) error {
	seq, err := c.Thread.ReadFileStream(c.Context(), c.Rest())
	if errors.Is(err, store.ErrFolder) {
		return isFolder(c)
	}
	if err != nil {
		return err
	}
	if seq == nil {
		return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
	}
	c.Response.Header().Set("Content-Type", "application/jsonl")
	call.SetDownloadHeaders(c.Response.Header(), c.Rest()+".jsonl")
	out := c.PatientWriter(h.TransferTimeout)
	lines := json.NewEncoder(out)
	for chunk, err := range seq {
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
		}
		if lines.Encode(runtimev1.FileChunk(chunk)) != nil {
			return nil // the client has gone
		}
	}
	return nil
}

func isFolder(c *call.Call) error {
	return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "path", filePath(c)+" is a folder: list it with files?dir="+filePath(c))
}
