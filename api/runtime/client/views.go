package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// viewRequest starts a request to a view. An empty namespace means all namespaces, or a view without a namespace.
// Each part becomes one segment of the URL.
func (c *Client) viewRequest(verb, namespace string, view runtimev1.View, parts ...string) (*rest.Request, error) {
	segments := []string{"/apis", runtimev1.GroupVersion.Group, runtimev1.GroupVersion.Version}
	if namespace != "" {
		parts = append([]string{"namespaces", namespace, string(view)}, parts...)
	} else {
		parts = append([]string{string(view)}, parts...)
	}
	for _, p := range parts {
		if err := checkSegment(p); err != nil {
			return nil, err
		}
		if strings.Contains(p, "/") {
			return nil, fmt.Errorf("%q cannot be part of a URL: it has a slash", p)
		}
	}
	return c.rest.Verb(verb).AbsPath(append(segments, parts...)...), nil
}

// viewAs reads an answer of type T from a view.
func viewAs[T any](ctx context.Context, c *Client, params map[string]string, namespace string, view runtimev1.View, parts ...string) (*T, error) {
	r, err := c.viewRequest(http.MethodGet, namespace, view, parts...)
	if err != nil {
		return nil, err
	}
	for k, v := range params {
		r.Param(k, v)
	}
	return getAs[T](ctx, r)
}

// Lookup finds a thread by any form of its id, in any namespace, among those that the caller may get (THR-16): the
// UUID, T-<uuid>, thrd_<32 hex digits>, the last 12 hex digits of the UUID, or the name. The error is one that
// IsNotFound when there is none, and one that IsConflict when a short form or a name means several.
func (c *Client) Lookup(ctx context.Context, id string) (*runtimev1.ThreadRecord, error) {
	return viewAs[runtimev1.ThreadRecord](ctx, c, nil, "", runtimev1.ViewLookups, id)
}
