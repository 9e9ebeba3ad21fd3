package endpoint

import (
	"net/http"
	"slices"
)

// Serves tells whether an endpoint of these methods answers a request: HEAD is answered by GET, without the body.
func Serves(methods []string, method string) bool {
	return slices.Contains(methods, method) || method == http.MethodHead && slices.Contains(methods, http.MethodGet)
}

// Allow gives, sorted, all that endpoints of these methods answer: HEAD with GET, and OPTIONS always.
func Allow(methods []string) []string {
	all := append(slices.Clone(methods), http.MethodOptions)
	if slices.Contains(methods, http.MethodGet) {
		all = append(all, http.MethodHead)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Shared gives the methods that two endpoints both have, in the order of the first.
func Shared(a, b []string) []string {
	var both []string
	for _, m := range a {
		if slices.Contains(b, m) {
			both = append(both, m)
		}
	}
	return both
}
