package files

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/thread"
)

// Uploads in parts exist because a request through the Kubernetes API lasts a minute at most. A part can also be sent
// again.

var errCutOff = apierrors.NewBadRequest("the file was not stored: its bytes were cut off or came too slowly: send it again")

// putPart answers PUT files/{path}?upload=&part=.
func (h *Handler) putPart(c *call.Call, id string, part int) error {
	u, err := c.Thread.Upload(c.Rest(), id)
	if err != nil {
		return err
	}
	if err := drawTransferMemory(c.Context()); err != nil {
		return err
	}
	in := c.PatientBody(h.TransferTimeout)
	size, err := u.Put(c.Context(), part, in)
	if in.Err != nil {
		return errCutOff
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.FilePart{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFilePart), Upload: id, Part: part, Size: size})
}

func completeUpload(c *call.Call, id string, parts int, o thread.WriteFileOptions) error {
	u, err := c.Thread.Upload(c.Rest(), id)
	if err != nil {
		return err
	}
	rec, err := u.Complete(c.Context(), parts, o)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusCreated, fileOf(rec))
}

func abortUpload(c *call.Call, id string) error {
	u, err := c.Thread.Upload(c.Rest(), id)
	if err != nil {
		return err
	}
	if err := u.Abort(c.Context()); err != nil {
		return err
	}
	return c.WriteSuccess()
}
