package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// FiringPage selects a page of firings. The zero value is the first page.
type FiringPage struct {
	// Continue is FiringList.Continue of the page before.
	Continue string
	// Before selects firings due before this time, in microseconds since 1970, when it is not 0. Set it or Continue.
	Before int64
	// Limit of the page; 100 when 0.
	Limit int
}

// Firings returns a page of what a ScheduledEffect fired, the newest due time first, and what it did not fire (EFF-07). The
// error is one that IsNotFound when there is no such ScheduledEffect.
func (c *Client) Firings(ctx context.Context, namespace, name string, page FiringPage) (*runtimev1.FiringList, error) {
	params := map[string]string{}
	if page.Continue != "" {
		params["continue"] = page.Continue
	}
	if page.Before != 0 {
		params["before"] = strconv.FormatInt(page.Before, 10)
	}
	if page.Limit != 0 {
		params["limit"] = strconv.Itoa(page.Limit)
	}
	return viewAs[runtimev1.FiringList](ctx, c, params, namespace, runtimev1.ViewFirings, name)
}

// CancelFiring cancels a firing that has not ended, and leaves the schedule alone (EFF-08). The handler of a firing that is under way is
// stopped. The error is one that IsNotFound when there is no such ScheduledEffect or firing, one that IsConflict when the firing has
// ended, and one that IsInvalid when the due time fired for several threads and which does not name one.
func (c *Client) CancelFiring(ctx context.Context, namespace, name string, which runtimev1.CancelFiring) (*runtimev1.Firing, error) {
	r, err := c.viewRequest(http.MethodPost, namespace, runtimev1.ViewFirings, name, runtimev1.ActionCancelFiring)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(which)
	if err != nil {
		return nil, err
	}
	return getAs[runtimev1.Firing](ctx, r.Body(body))
}
