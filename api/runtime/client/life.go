package client

import (
	"context"
	"net/http"
	"strconv"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Destroy ends a current run and clears the conversation: messages, queue and thread state are removed; files, values
// and environment stay. The thread remains usable (THR-06).
func (t *Thread) Destroy(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPost, runtimev1.Stop{}, runtimev1.SubresourceDestroy)
}

// Continue starts the processing of messages that have waited in the queue since a user stopped a run (MSG-08). When
// nothing is parked it does nothing.
func (t *Thread) Continue(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPost, runtimev1.Stop{}, runtimev1.SubresourceContinue)
}

// Retained returns a page of the threads of a namespace that are kept without a Thread object, by id (THR-09). after
// is the id of the last thread of the previous page, or "" for the first page. A limit of 0 means 100.
func (c *Client) Retained(ctx context.Context, namespace, after string, limit int) (*runtimev1.RetainedList, error) {
	params := map[string]string{}
	if after != "" {
		params["after"] = after
	}
	if limit != 0 {
		params["limit"] = strconv.Itoa(limit)
	}
	return viewAs[runtimev1.RetainedList](ctx, c, params, namespace, runtimev1.ViewRetained)
}

// PurgeRetained removes all data of a retained thread for good. The error is one that IsNotFound when the namespace
// has no retained thread of that id, and one that IsConflict when the thread has a Thread object.
func (c *Client) PurgeRetained(ctx context.Context, namespace, id string) error {
	r, err := c.viewRequest(http.MethodDelete, namespace, runtimev1.ViewRetained, id)
	if err != nil {
		return err
	}
	return get(ctx, r.MaxRetries(0), nil)
}
