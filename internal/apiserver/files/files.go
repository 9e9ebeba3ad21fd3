// Package files serves the files of a thread, and uploads in parts.
package files

import (
	"context"
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
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Handler serves the files of a thread.
type Handler struct {
	// TransferTimeout bounds one piece of a file, in either direction.
	TransferTimeout time.Duration
}

func fileOf(r *thread.FileRecord) runtimev1.FileRecord { return runtimev1.FileRecord(*r) }

// Read answers GET and HEAD files/{path}: it streams the bytes, or returns what stat, thumbnail or chunked
// requests. It supports ranges, so that an interrupted transfer can continue. The entity tag shows whether the
// content is still the same.
func (h *Handler) Read(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	stat, chunked, small := q.Flag("stat", false), q.Flag("chunked", false), q.Flag("thumbnail", false)
	o := thread.ThumbnailOptions{Width: q.Number("width", 0, 1, thread.MaxThumbnail), Height: q.Number("height", 0, 1, thread.MaxThumbnail)}
	if !small && o != (thread.ThumbnailOptions{}) {
		q.Bad("width", "width and height are for thumbnails only: set thumbnail=true too")
	}
	if err := q.Check(); err != nil {
		return err
	}
	switch {
	case stat:
		return h.stat(c)
	case chunked:
		return h.stream(c)
	case small:
		return h.thumbnail(c, o)
	}
	rc, rec, sum, err := c.Thread.OpenContents(c.Context(), c.Rest())
	if errors.Is(err, store.ErrFolder) {
		return isFolder(c)
	}
	if err != nil {
		return err
	}
	if rc == nil {
		return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
	}
	defer func() { _ = rc.Close() }()
	wire := fileOf(rec)
	meta, err := json.Marshal(wire)
	if err != nil {
		return err
	}
	header := c.Response.Header()
	header.Set("Content-Type", orOctets(rec.MimeType))
	call.SetDownloadHeaders(header, rec.Path)
	header.Set("ETag", `"`+sum+`"`)
	if len(meta) <= maxRecordHeader { // clients may refuse larger headers; the list has the metadata
		header.Set(runtimev1.HeaderFileRecord, string(meta))
	}
	if err := drawTransferMemory(c.Context()); err != nil {
		return err
	}
	out := c.PatientWriter(h.TransferTimeout)
	if seeker, ok := rc.(io.ReadSeeker); ok {
		http.ServeContent(out, c.Request, path.Base(rec.Path), time.UnixMicro(rec.CreatedAt), seeker)
		return nil
	}
	header.Set("Content-Length", strconv.FormatInt(rec.Size, 10))
	c.Response.WriteHeader(http.StatusOK)
	if c.Request.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(out, rc); err != nil {
		panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
	}
	return nil
}

// transferBytes is about how much memory a file takes while it comes in or goes out.
const transferBytes = 1 << 20

// drawTransferMemory draws, from the memory account of the request, what the transfer of a file takes, for as long as the request lasts.
func drawTransferMemory(ctx context.Context) error {
	return membudget.From(ctx).Draw(ctx, transferBytes)
}

const maxRecordHeader = 16 << 10

// filePath returns the path of a file as the caller wrote it.
func filePath(c *call.Call) string { return "/" + c.Rest() }

func orOctets(mimeType string) string {
	if mimeType == "" {
		return "application/octet-stream"
	}
	return mimeType
}

// Write answers PUT files/{path}: the body is the file, streamed in bounded memory, and its Content-Type is the
// mimeType. With directory=true it creates a folder. With upload and part the body is one part of the file. With
// upload and parts it assembles the file from that many parts.
func (h *Handler) Write(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	dir, upload := q.Flag("directory", false), q.Text("upload")
	part, parts := q.Number("part", -1, 0, thread.MaxParts-1), q.Number("parts", 0, 1, thread.MaxCompleteParts)
	switch {
	case upload == "" && (part >= 0 || parts > 0):
		q.Bad("upload", "set it to the id of the upload that the part belongs to")
	case upload != "" && (dir || part >= 0 == (parts > 0)):
		q.Bad("upload", "set part to send the bytes of one part, or parts to assemble the file from that many")
	}
	if err := q.Check(); err != nil {
		return err
	}
	ctx := c.Context()
	if upload != "" && part >= 0 {
		return h.putPart(c, upload, part)
	}
	if dir {
		rec, err := c.Thread.Mkdir(ctx, c.Rest())
		if err != nil {
			return err
		}
		return c.WriteJSON(http.StatusCreated, fileOf(rec))
	}
	opts := thread.WriteFileOptions{MimeType: c.Request.Header.Get("Content-Type")}
	if meta := c.Request.Header.Get(runtimev1.HeaderFileMetadata); meta != "" {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(meta), &object); err != nil || object == nil {
			return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, textproto.CanonicalMIMEHeaderKey(runtimev1.HeaderFileMetadata), "give a JSON object")
		}
		opts.Metadata = json.RawMessage(meta)
	}
	if upload != "" {
		return completeUpload(c, upload, parts, opts)
	}
	if err := drawTransferMemory(ctx); err != nil {
		return err
	}
	in := c.PatientBody(h.TransferTimeout)
	rec, err := c.Thread.WriteFile(ctx, c.Rest(), in, opts)
	if in.Err != nil {
		return errCutOff
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusCreated, fileOf(rec))
}

// Delete answers DELETE files/{path}: it removes a file or an empty folder. The parameter directory requires it
// to be a folder, or not to be one. With upload it removes the parts of an unfinished upload.
func (h *Handler) Delete(c *call.Call) error {
	ctx := c.Context()
	q, err := c.Query()
	if err != nil {
		return err
	}
	kind, upload := q.OneOf("directory", "true", "false"), q.Text("upload")
	if err := q.Check(); err != nil {
		return err
	}
	if upload != "" {
		return abortUpload(c, upload)
	}
	rec, err := c.Thread.StatFile(ctx, c.Rest())
	if err != nil {
		return err
	}
	if rec == nil {
		return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
	}
	if kind == "true" || kind == "" && rec.IsDirectory {
		err = c.Thread.Rmdir(ctx, rec.Path)
	} else {
		err = c.Thread.Unlink(ctx, rec.Path)
	}
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no file %q: GET files?recursive=true lists what there is", c.Name, filePath(c))
	}
	if err != nil {
		return err
	}
	return c.WriteSuccess()
}
