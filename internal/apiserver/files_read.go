package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// listFiles answers GET files: a page of files, or what one of stats, find, grep and dir requests.
func (h *fileHandler) listFiles(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	asked := 0
	for _, key := range []string{"stats", "find", "grep", "dir", "glob"} {
		if q.values.Has(key) {
			asked++
		}
	}
	if asked > 1 {
		q.bad("stats", "set only one of stats, find, grep, dir and glob")
	}
	switch {
	case q.values.Has("stats"):
		return h.fileStats(c, q)
	case q.values.Has("find"):
		return h.findFiles(c, q)
	case q.values.Has("grep"):
		return h.grepFiles(c, q)
	case q.values.Has("dir"):
		return h.readDir(c, q)
	}
	return h.pageFiles(c, q)
}

func (h *fileHandler) fileStats(c *call, q *query) error {
	_ = q.flag("stats", false)
	if err := q.check(); err != nil {
		return err
	}
	st, err := c.thread.FileStats(c.r.Context())
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.FileStats{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileStats), FileCount: st.FileCount, DirectoryCount: st.DirectoryCount,
		TotalSize: st.TotalSize, MaxSize: st.MaxSize, MaxEntries: st.MaxEntries,
	})
}

func (h *fileHandler) findFiles(c *call, q *query) error {
	pattern, limit := q.text("find"), q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	if err := q.check(); err != nil {
		return err
	}
	found, err := c.thread.FindSome(c.r.Context(), pattern, limit)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.FileMatches{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileMatches), Paths: found.Paths, Truncated: found.Truncated,
	})
}

func (h *fileHandler) grepFiles(c *call, q *query) error {
	pattern, limit := q.text("grep"), q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	if err := q.check(); err != nil {
		return err
	}
	found, err := c.thread.GrepSome(c.r.Context(), pattern, limit)
	if err != nil {
		return err
	}
	out := runtimev1.GrepList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindGrepList), Results: []runtimev1.GrepResult{}, Truncated: found.Truncated}
	for _, r := range found.Results {
		result := runtimev1.GrepResult{Path: r.Path, Truncated: r.Truncated}
		for _, m := range r.Matches {
			result.Matches = append(result.Matches, runtimev1.GrepMatch(m))
		}
		out.Results = append(out.Results, result)
	}
	return c.writeJSON(http.StatusOK, out)
}

// readDir answers GET files?dir=: the content of one folder, which must exist.
func (h *fileHandler) readDir(c *call, q *query) error {
	limit, offset := q.page()
	dir := q.text("dir")
	if err := q.check(); err != nil {
		return err
	}
	listing, err := c.thread.ReadDir(c.r.Context(), dir)
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.name, "thread %q has no folder %q", c.name, dir)
	}
	if err != nil {
		return err
	}
	return writeFiles(c, listing.Entries, limit, offset, false)
}

func (h *fileHandler) pageFiles(c *call, q *query) (err error) {
	limit, offset := q.page()
	prefix, recursive, glob := q.text("prefix"), q.flag("recursive", false), q.text("glob")
	if glob != "" && (prefix != "" || recursive) {
		q.bad("glob", "set either glob, or prefix and recursive: a glob may start with a folder, such as /reports/**")
	}
	q.known = append(q.known, "stats", "find", "grep", "dir")
	if err := q.check(); err != nil {
		return err
	}
	var all []thread.FileRecord
	truncated := false
	if glob != "" {
		all, truncated, err = globFiles(c, glob)
	} else {
		all, err = c.thread.ListFiles(c.r.Context(), prefix, recursive)
	}
	if err != nil {
		return err
	}
	return writeFiles(c, all, limit, offset, truncated)
}

func writeFiles(c *call, all []thread.FileRecord, limit, offset int, truncated bool) error {
	page, more := cut(all, limit, offset)
	list := runtimev1.FileList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileList), Files: []runtimev1.FileRecord{}, HasMore: more || truncated}
	for i := range page {
		list.Files = append(list.Files, fileOf(&page[i]))
	}
	return c.writeJSON(http.StatusOK, list)
}

// globFiles returns the records of the files that match, at most as many as one search finds (FIL-05).
func globFiles(c *call, glob string) (records []thread.FileRecord, truncated bool, err error) {
	found, err := c.thread.FindFiles(c.r.Context(), glob)
	if err != nil {
		return nil, false, err
	}
	for _, p := range found.Paths {
		rec, err := c.thread.StatFile(c.r.Context(), p)
		if err != nil {
			return nil, false, err
		}
		if rec != nil { // nil means that it was removed meanwhile
			records = append(records, *rec)
		}
	}
	return records, found.Truncated, nil
}

// statFile answers GET files/{path}?stat=true: the record of a file or a folder.
func (h *fileHandler) statFile(c *call) error {
	rec, err := c.thread.StatFile(c.r.Context(), c.rest())
	if err != nil {
		return err
	}
	if rec == nil {
		return status.NotFound(c.name, "thread %q has no file %q", c.name, filePath(c))
	}
	return c.writeJSON(http.StatusOK, fileOf(rec))
}

// thumbnail answers GET files/{path}?thumbnail=true: a small image, or 204 when the file is not an image (FIL-06).
func (h *fileHandler) thumbnail(c *call, o thread.ThumbnailOptions) error {
	ctx := c.r.Context()
	t, err := c.thread.Thumbnail(ctx, c.rest(), o)
	if err != nil {
		return err
	}
	if t == nil {
		rec, err := c.thread.StatFile(ctx, c.rest())
		if err == nil && rec == nil {
			return status.NotFound(c.name, "thread %q has no file %q", c.name, filePath(c))
		}
		if err == nil {
			c.w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", t.MimeType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(t.Data)))
	_, _ = c.w.Write(t.Data)
	return nil
}

// streamFile answers GET files/{path}?chunked=true: the file as lines of JSON, one chunk each (FIL-03). An error
// closes the connection before the chunk that is marked as the last, so that the client notices it.
func (h *fileHandler) streamFile(c *call) error {
	seq, err := c.thread.ReadFileStream(c.r.Context(), c.rest())
	if errors.Is(err, store.ErrFolder) {
		return isFolder(c)
	}
	if err != nil {
		return err
	}
	if seq == nil {
		return status.NotFound(c.name, "thread %q has no file %q", c.name, filePath(c))
	}
	c.w.Header().Set("Content-Type", "application/jsonl")
	out := c.patientWriter(h.transferTimeout)
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

func isFolder(c *call) error {
	return status.Invalid(c.name, metav1.CauseTypeFieldValueInvalid, "path", filePath(c)+" is a folder: list it with files?dir="+filePath(c))
}
