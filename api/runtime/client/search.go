package client

import (
	"context"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// SearchOptions bound a search.
type SearchOptions struct {
	Page
	Namespace string // all that the caller may read when empty
	Thread    string // name or any form of the id
	Role      string // system, user, assistant or tool
}

// Search finds messages by their text in the threads that the caller may read, the best first (THR-16): words,
// "phrases in quotes", -words that must not be there and beginnings*.
func (c *Client) Search(ctx context.Context, text string, o SearchOptions) (*runtimev1.SearchHitList, error) {
	p := o.params()
	p["q"] = text
	for k, v := range map[string]string{"namespace": o.Namespace, "thread": o.Thread, "role": o.Role} {
		if v != "" {
			p[k] = v
		}
	}
	return one[runtimev1.SearchHitList](func(out any) error { return c.viewAt(ctx, out, p, "", runtimev1.ViewSearches) })
}
