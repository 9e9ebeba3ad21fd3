package client

import (
	"context"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// SearchOptions limit a search.
type SearchOptions struct {
	Page
	Namespace string // empty means all that the caller may read
	Thread    string // the name or any form of the id
	Role      string // system, user, assistant or tool
}

// Search finds messages by their text in the threads that the caller may read, best matches first (THR-16). The text
// may have words, "phrases in quotes", -words that must not occur, and beginnings*.
func (c *Client) Search(ctx context.Context, text string, o SearchOptions) (*runtimev1.SearchHitList, error) {
	p := o.params()
	p["q"] = text
	for k, v := range map[string]string{"namespace": o.Namespace, "thread": o.Thread, "role": o.Role} {
		if v != "" {
			p[k] = v
		}
	}
	return viewAs[runtimev1.SearchHitList](ctx, c, p, "", runtimev1.ViewSearches)
}
