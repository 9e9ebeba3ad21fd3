package conditions_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/store"
)

func TestAFailureNamesNothingOfTheInstallation(t *testing.T) {
	dial := &url.Error{Op: "Patch", URL: "https://10.0.0.1:443/apis", Err: errors.New("connection refused")}
	for err, want := range map[error]string{
		fmt.Errorf("thread t: %w: failed to connect to `user=skein database=skein`: 10.1.2.3:5432", store.ErrUnavailable): "the store cannot be reached or cannot write; this is tried again",
		fmt.Errorf("%w: write /data/blobs/x: no space left on device", store.ErrNoSpace):                                  "the disk of file contents is full; this is tried again",
		fmt.Errorf("list children: %w", context.DeadlineExceeded):                                                         "there was no answer in time; this is tried again",
		fmt.Errorf("patch: %w", dial): "an error occurred, which the manager's log shows; this is tried again",
		fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "t", errors.New(`User "system:serviceaccount:skein-system:skein-manager" cannot create resource`))): "the manager lacks a right, which its log names; this is tried again",
		fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, "t", errors.New("exceeded quota: team"))):                                                           `threads "t" is forbidden: exceeded quota: team; this is tried again`,
		fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New(`failed calling webhook "w": Post "https://10.96.0.7:443": connection refused`))):                                               "the API server failed; this is tried again",
		fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New(`admission webhook "w" denied the request: not on Sundays`))):                                                                   `Internal error occurred: admission webhook "w" denied the request: not on Sundays; this is tried again`,
		fmt.Errorf("create the child: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "agents"}, "a")):                                                                                       `agents "a" not found; this is tried again`,
	} {
		if got := conditions.Failure(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
