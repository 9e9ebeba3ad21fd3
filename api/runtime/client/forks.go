package client

import (
	"context"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Fork makes a new thread that begins with the messages of this one up to a message, and returns its record (REL-02). It
// returns once the fork can be used. The caller needs the right to create Thread objects, and to read the messages and the
// files of this thread.
func (t *Thread) Fork(ctx context.Context, n runtimev1.NewFork) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPost, n, runtimev1.SubresourceFork)
}
