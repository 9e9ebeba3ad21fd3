package client

import (
	"context"
	"strconv"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Firings returns a page of what a ScheduledEffect fired, the newest due time first, and what it did not fire (EFF-07). before is the due
// time of the last firing of the previous page, in microseconds since 1970, or 0 for the first page. A limit of 0 means 100. The error
// is one that IsNotFound when there is no such ScheduledEffect.
func (c *Client) Firings(ctx context.Context, namespace, name string, before int64, limit int) (*runtimev1.FiringList, error) {
	params := map[string]string{}
	if before != 0 {
		params["before"] = strconv.FormatInt(before, 10)
	}
	if limit != 0 {
		params["limit"] = strconv.Itoa(limit)
	}
	return viewAs[runtimev1.FiringList](ctx, c, params, namespace, runtimev1.ViewFirings, name)
}
