package harness

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestRightsUse(t *testing.T) {
	u := usage{given: []Right{{"", "", "secrets", "get"}, {"", "skein.dev", "threads/status", "patch"}, {"system", "", "events", "create"}, {"", "", "pods", "create"}},
		used: map[Right]bool{}, missing: map[string]bool{}, refused: map[string]bool{}}
	for _, request := range []struct {
		agent, verb, group, resource, subresource, namespace, message string
		code                                                          int
	}{
		{"skein-manager", "get", "", "secrets", "", "a", "", 200},
		{"skein-manager", "patch", "skein.dev", "threads", "status", "a", "", 200},
		{"skein-manager", "create", "", "events", "", "other", "", 201},
		{"skein-manager", "delete", "", "secrets", "", "a", "", 200},
		{"kubectl", "delete", "", "nodes", "", "", "", 200},
		{"skein-manager", "get", "", "secrets", "", "b", "no RBAC policy matched", 403},
		{"skein-manager", "create", "", "pods", "", "b", "pods is forbidden: unable to create new content in namespace b because it is being terminated", 403},
	} {
		u.line(fmt.Appendf(nil, `{"userAgent":%q,"verb":%q,"objectRef":{"apiGroup":%q,"resource":%q,"subresource":%q,"namespace":%q},"responseStatus":{"code":%d,"message":%q}}`,
			request.agent, request.verb, request.group, request.resource, request.subresource, request.namespace, request.code, request.message))
	}
	sum := u.sum()
	for what, lists := range map[string][2][]string{
		"missing": {sum.Missing, {"create /events in other", "delete /secrets in a"}},
		"unused":  {sum.Unused, {"create /events in system"}},
		"refused": {sum.Refused, {"get /secrets: no RBAC policy matched"}},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s are %q, not %q", what, lists[0], lists[1])
		}
	}
}

// TestUnusedRightsAreGiven expects that the table names no right that the manager does not have any more.
func TestUnusedRightsAreGiven(t *testing.T) {
	rights, err := given()
	if err != nil {
		t.Fatal(err)
	}
	table := maps.Clone(UnusedRights)
	maps.Copy(table, maybeUnusedRights)
	for right, reason := range table {
		if !slices.ContainsFunc(rights, func(r Right) bool { return r.String() == right }) {
			t.Errorf("%q is no right of config/rbac/role.yaml", right)
		}
		if reason == "" {
			t.Errorf("%q has no reason", right)
		}
	}
}
