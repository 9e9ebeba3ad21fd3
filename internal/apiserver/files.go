package apiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"path"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

func fileOf(r *thread.FileRecord) runtimev1.FileRecord { return runtimev1.FileRecord(*r) }

// listFiles answers GET files.
func (s *Server) listFiles(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	prefix, recursive, glob := q.text("prefix"), q.flag("recursive", false), q.text("glob")
	if glob != "" && (prefix != "" || recursive) {
		q.bad("glob", "give either glob or prefix and recursive: a glob may start with a folder, such as /reports/**")
	}
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
	page, more := cut(all, limit, offset)
	list := runtimev1.FileList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFileList), Files: []runtimev1.FileRecord{}, HasMore: more || truncated}
	for i := range page {
		list.Files = append(list.Files, fileOf(&page[i]))
	}
	return c.writeJSON(http.StatusOK, list)
}

// globFiles gives the records of the files that match, as many as the domain finds at once (SPEC FIL-05).
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
		if rec != nil { // else it was removed in between
			records = append(records, *rec)
		}
	}
	return records, found.Truncated, nil
}

// readFile answers GET and HEAD files/{path}: the bytes, as a stream. A range may be asked for when the bucket
// can seek, so that a transfer that was cut off goes on where it ended.
func (s *Server) readFile(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	rc, rec, err := c.thread.OpenFile(c.r.Context(), c.rest())
	if errors.Is(err, store.ErrFolder) {
		return invalid(c.name, metav1.CauseTypeFieldValueInvalid, "path", c.filePath()+" is a folder: list it with files?prefix="+c.filePath())
	}
	if err != nil {
		return err
	}
	if rc == nil {
		return notFound(c.name, "thread %q has no file %q", c.name, c.filePath())
	}
	defer func() { _ = rc.Close() }()
	wire := fileOf(rec)
	meta, err := json.Marshal(wire)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", orOctets(rec.MimeType))
	h.Set("X-Content-Type-Options", "nosniff")
	if len(meta) <= maxRecordHeader { // metadata may be larger than clients take as a header; the list has it
		h.Set(runtimev1.HeaderFileRecord, string(meta))
	}
	out := &patientWriter{ResponseWriter: c.w, control: http.NewResponseController(c.w), limit: s.opts.transferTimeout}
	if seeker, ok := rc.(io.ReadSeeker); ok {
		http.ServeContent(out, c.r, path.Base(rec.Path), time.UnixMicro(rec.CreatedAt), seeker)
		return nil
	}
	h.Set("Content-Length", strconv.FormatInt(rec.Size, 10))
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(out, rc); err != nil {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

const maxRecordHeader = 16 << 10

// filePath is the path of a file as the caller wrote it.
func (c *call) filePath() string { return "/" + c.rest() }

func orOctets(mimeType string) string {
	if mimeType == "" {
		return "application/octet-stream"
	}
	return mimeType
}

// writeFile answers PUT files/{path}: the body is the file, streamed in bounded memory, its Content-Type the
// mimeType. With directory=true it makes a folder.
func (s *Server) writeFile(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	dir := q.flag("directory", false)
	if err := q.check(); err != nil {
		return err
	}
	ctx := c.r.Context()
	if dir {
		rec, err := c.thread.Mkdir(ctx, c.rest())
		if err != nil {
			return err
		}
		return c.writeJSON(http.StatusCreated, fileOf(rec))
	}
	opts := thread.WriteFileOptions{MimeType: c.r.Header.Get("Content-Type")}
	if meta := c.r.Header.Get(runtimev1.HeaderFileMetadata); meta != "" {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(meta), &object); err != nil || object == nil {
			return invalid(c.name, metav1.CauseTypeFieldValueInvalid, textproto.CanonicalMIMEHeaderKey(runtimev1.HeaderFileMetadata), "give a JSON object")
		}
		opts.Metadata = json.RawMessage(meta)
	}
	in := &patientReader{r: c.r.Body, control: http.NewResponseController(c.w), limit: s.opts.transferTimeout}
	rec, err := c.thread.WriteFile(ctx, c.rest(), in, opts)
	if in.err != nil {
		return apierrors.NewBadRequest("the file was not stored: its bytes were cut off or came too slowly: send it again")
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusCreated, fileOf(rec))
}

// deleteFile answers DELETE files/{path}: a file, or an empty folder.
func (s *Server) deleteFile(c *call) error {
	ctx := c.r.Context()
	rec, err := c.thread.StatFile(ctx, c.rest())
	if err != nil {
		return err
	}
	if rec == nil {
		return notFound(c.name, "thread %q has no file %q", c.name, c.filePath())
	}
	if rec.IsDirectory {
		err = c.thread.Rmdir(ctx, rec.Path)
	} else {
		err = c.thread.Unlink(ctx, rec.Path)
	}
	if errors.Is(err, store.ErrNotFound) {
		return notFound(c.name, "thread %q has no file %q", c.name, c.filePath())
	}
	if err != nil {
		return err
	}
	return c.writeSuccess()
}

// patientReader gives a client limit for each piece, not for the whole.
type patientReader struct {
	r       io.Reader
	control *http.ResponseController
	limit   time.Duration
	err     error // why reading ended, unless at the end
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.limit)) // not every transport can; then there is no limit
	n, err := p.r.Read(b)
	switch {
	case err == io.EOF:
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil: // the deadline stays: the transport would wait for the rest of the body
		p.err = err
	}
	return n, err
}

// patientWriter is the same for a client that reads.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (p *patientWriter) Write(b []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(p.limit))
	n, err := p.ResponseWriter.Write(b)
	if err == nil {
		_ = p.control.SetWriteDeadline(time.Time{})
	}
	return n, err
}
