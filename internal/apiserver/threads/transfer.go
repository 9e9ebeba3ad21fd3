package threads

import (
	"errors"
	"mime"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Transfers exports and imports conversations.
type Transfers struct {
	// TransferTimeout bounds one piece of a conversation, in either direction.
	TransferTimeout time.Duration
}

// Export answers GET export: it streams the conversation as lines of JSON (LOG-01).
func (h *Transfers) Export(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	if err := q.Check(); err != nil {
		return err
	}
	c.Response.Header().Set("Content-Type", runtimev1.MediaTypeJSONL)
	call.SetDownloadHeaders(c.Response.Header(), c.Name+".jsonl")
	out := c.PatientWriter(h.TransferTimeout)
	wrote, err := c.Thread.Export(c.Context(), out)
	if err == nil {
		return nil
	}
	if wrote {
		panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
	}
	return err
}

// importMedia are the media types with which clients send lines of JSON.
var importMedia = map[string]bool{
	"": true, runtimev1.MediaTypeJSONL: true, "application/x-ndjson": true, "application/jsonlines": true, "application/json": true,
	"application/octet-stream": true, "text/plain": true,
}

// Import answers POST import. The body is the output of export, and the thread must be empty (LOG-02). The
// import is all or nothing.
func (h *Transfers) Import(c *call.Call) error {
	media := ""
	if ct := c.Request.Header.Get("Content-Type"); ct != "" {
		var err error
		if media, _, err = mime.ParseMediaType(ct); err != nil {
			media = ct
		}
	}
	if !importMedia[media] {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the body must be lines of JSON: send it with Content-Type: " + runtimev1.MediaTypeJSONL,
		}}
	}
	in := c.PatientBody(h.TransferTimeout)
	r, err := c.Thread.Import(c.Context(), in)
	var wrong *thread.ImportError
	switch {
	case in.Err != nil:
		return apierrors.NewBadRequest("nothing was imported: the body was cut off or came too slowly: send it again")
	case errors.As(err, &wrong):
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "body", "nothing was imported: "+wrong.Error())
	case errors.Is(err, store.ErrNotEmpty):
		return apierrors.NewConflict(status.ThreadsResource, c.Name, errors.New("it has a conversation already, or something waits in its queue: import into a new Thread, or destroy the conversation first"))
	case err != nil:
		return err
	}
	return c.WriteJSON(http.StatusCreated, runtimev1.ImportResult{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindImportResult), Messages: r.Messages, Events: r.Events, LastEvent: r.LastSeq,
	})
}
