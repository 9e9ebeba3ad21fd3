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

// Rerun takes a run that has ended up again from one of its steps, in a fork of the thread, whose record it returns
// (RUN-12). The thread itself stays as it is. The rights are those of Fork, and create on threads/runs.
func (t *Thread) Rerun(ctx context.Context, run string, n runtimev1.NewRerun) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPost, n, runtimev1.SubresourceRuns, run, runtimev1.ActionRerun)
}
