package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/thread"
)

// Uploads in parts. Through the Kubernetes API a request lasts a minute at most, and a part can be sent again.

var errCutOff = apierrors.NewBadRequest("the file was not stored: its bytes were cut off or came too slowly: send it again")

// body is the request's body, for a client that may take its time.
func (s *Server) body(c *call) *patientReader {
	return &patientReader{r: c.r.Body, control: http.NewResponseController(c.w), limit: s.opts.transferTimeout}
}

// putPart answers PUT files/{path}?upload=&part=.
func (s *Server) putPart(c *call, id string, part int) error {
	u, err := c.thread.Upload(c.rest(), id)
	if err != nil {
		return err
	}
	in := s.body(c)
	size, err := u.Put(c.r.Context(), part, in)
	if in.err != nil {
		return errCutOff
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.FilePart{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFilePart), Upload: id, Part: part, Size: size})
}

func completeUpload(c *call, id string, parts int, o thread.WriteFileOptions) error {
	u, err := c.thread.Upload(c.rest(), id)
	if err != nil {
		return err
	}
	rec, err := u.Complete(c.r.Context(), parts, o)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusCreated, fileOf(rec))
}

func abortUpload(c *call, id string) error {
	u, err := c.thread.Upload(c.rest(), id)
	if err != nil {
		return err
	}
	if err := u.Abort(c.r.Context()); err != nil {
		return err
	}
	return c.writeSuccess()
}
