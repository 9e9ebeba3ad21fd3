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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

func fileOf(r *thread.FileRecord) runtimev1.FileRecord { return runtimev1.FileRecord(*r) }

// readFile answers GET and HEAD files/{path}: it streams the bytes, or returns what stat, thumbnail or chunked
// requests. It supports ranges, so that an interrupted transfer can continue. The entity tag shows whether the
// content is still the same.
func (s *Server) readFile(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	stat, chunked, small := q.flag("stat", false), q.flag("chunked", false), q.flag("thumbnail", false)
	o := thread.ThumbnailOptions{Width: q.number("width", 0, 1, thread.MaxThumbnail), Height: q.number("height", 0, 1, thread.MaxThumbnail)}
	if !small && o != (thread.ThumbnailOptions{}) {
		q.bad("width", "width and height are for thumbnails only: set thumbnail=true too")
	}
	if err := q.check(); err != nil {
		return err
	}
	switch {
	case stat:
		return s.statFile(c)
	case chunked:
		return s.streamFile(c)
	case small:
		return s.thumbnail(c, o)
	}
	rc, rec, sum, err := c.thread.OpenContents(c.r.Context(), c.rest())
	if errors.Is(err, store.ErrFolder) {
		return isFolder(c)
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
	h.Set("ETag", `"`+sum+`"`)
	if len(meta) <= maxRecordHeader { // clients may refuse larger headers; the list has the metadata
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
		panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
	}
	return nil
}

const maxRecordHeader = 16 << 10

// filePath returns the path of a file as the caller wrote it.
func (c *call) filePath() string { return "/" + c.rest() }

func orOctets(mimeType string) string {
	if mimeType == "" {
		return "application/octet-stream"
	}
	return mimeType
}

// writeFile answers PUT files/{path}: the body is the file, streamed in bounded memory, and its Content-Type is the
// mimeType. With directory=true it creates a folder. With upload and part the body is one part of the file. With
// upload and parts it assembles the file from that many parts.
func (s *Server) writeFile(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	dir, upload := q.flag("directory", false), q.text("upload")
	part, parts := q.number("part", -1, 0, thread.MaxParts-1), q.number("parts", 0, 1, thread.MaxParts)
	switch {
	case upload == "" && (part >= 0 || parts > 0):
		q.bad("upload", "set it to the id of the upload that the part belongs to")
	case upload != "" && (dir || part >= 0 == (parts > 0)):
		q.bad("upload", "set part to send the bytes of one part, or parts to assemble the file from that many")
	}
	if err := q.check(); err != nil {
		return err
	}
	ctx := c.r.Context()
	if upload != "" && part >= 0 {
		return s.putPart(c, upload, part)
	}
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
	if upload != "" {
		return completeUpload(c, upload, parts, opts)
	}
	in := s.body(c)
	rec, err := c.thread.WriteFile(ctx, c.rest(), in, opts)
	if in.err != nil {
		return errCutOff
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusCreated, fileOf(rec))
}

// deleteFile answers DELETE files/{path}: it removes a file or an empty folder. The parameter directory requires it
// to be a folder, or not to be one. With upload it removes the parts of an unfinished upload.
func (s *Server) deleteFile(c *call) error {
	ctx := c.r.Context()
	q, err := c.query()
	if err != nil {
		return err
	}
	kind, upload := q.oneOf("directory", "true", "false"), q.text("upload")
	if err := q.check(); err != nil {
		return err
	}
	if upload != "" {
		return abortUpload(c, upload)
	}
	rec, err := c.thread.StatFile(ctx, c.rest())
	if err != nil {
		return err
	}
	if rec == nil {
		return notFound(c.name, "thread %q has no file %q", c.name, c.filePath())
	}
	if kind == "true" || kind == "" && rec.IsDirectory {
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

// patientReader applies its time limit to each read, not to the whole body.
type patientReader struct {
	r       io.Reader
	control *http.ResponseController
	limit   time.Duration
	err     error // why reading ended, unless it reached the end
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.limit)) // not every transport supports deadlines; then there is no limit
	n, err := p.r.Read(b)
	switch {
	case err == io.EOF:
		_ = p.control.SetReadDeadline(time.Time{})
	case err != nil: // keep the deadline: otherwise the transport would wait for the rest of the body
		p.err = err
	}
	return n, err
}

// patientWriter applies its time limit to each write, not to the whole answer.
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
