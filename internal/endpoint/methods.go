package endpoint

import (
	"net/http"
	"slices"
)

// Serves reports whether an endpoint with these methods answers a request. GET also answers HEAD, without the body.
func Serves(methods []string, method string) bool {
	return slices.Contains(methods, method) || method == http.MethodHead && slices.Contains(methods, http.MethodGet)
}

// Allow returns, sorted, all methods that endpoints with these methods answer: also HEAD for GET, and always OPTIONS.
func Allow(methods []string) []string {
	all := append(slices.Clone(methods), http.MethodOptions)
	if slices.Contains(methods, http.MethodGet) {
		all = append(all, http.MethodHead)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Shared returns the methods that both endpoints have, in the order of the first.
func Shared(a, b []string) []string {
	var both []string
	for _, m := range a {
		if slices.Contains(b, m) {
			both = append(both, m)
		}
	}
	return both
}
