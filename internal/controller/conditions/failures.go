package conditions

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/internal/store"
)

// Failure returns the message of a condition for an error that is no mistake in the object: what fails, and that it is tried again. Texts
// of databases, buckets and networks stay in the manager's log. They name hosts, users and folders of the installation, which readers of
// the object need not know. Failure repeats what the API server says when it refuses an object. It does not repeat the refusal of a right,
// which names the manager's account, nor a failure of the API server, which may name the address of a webhook.
func Failure(err error) string {
	var answer apierrors.APIStatus
	switch {
	case errors.Is(err, store.ErrNoSpace):
		return "the disk of file contents is full; this is tried again"
	case errors.Is(err, store.ErrUnavailable):
		return "the store cannot be reached or cannot write; this is tried again"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `: User "`): // so the API server's authorizer says it
		return "the manager lacks a right, which its log names; this is tried again"
	case errors.As(err, &answer) && answer.Status().Code >= http.StatusInternalServerError && !strings.Contains(answer.Status().Message, "denied the request"):
		return "the API server failed; this is tried again"
	case errors.As(err, &answer) && answer.Status().Message != "":
		return answer.Status().Message + "; this is tried again"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "there was no answer in time; this is tried again"
	}
	return "an error occurred, which the manager's log shows; this is tried again"
}
