package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Right is a verb on a resource, such as get of /secrets or patch of skein.dev/threads/status.
type Right struct{ Namespace, Group, Resource, Verb string }

// String gives the right in short. The namespace is left out where the right holds in all of them.
func (r Right) String() string {
	text := r.Verb + " " + r.Group + "/" + r.Resource
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// given are the rights of config/rbac/role.yaml.
func given() (rights []Right, err error) {
	data, err := os.ReadFile(filepath.Join(Root(), "config", "rbac", "role.yaml"))
	if err != nil {
		return nil, err
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var role rbacv1.Role // a ClusterRole has the same fields
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			return rights, nil
		} else if err != nil {
			return nil, err
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{role.Namespace, group, resource, verb})
					}
				}
			}
		}
	}
}

// elsewhere are rights that the manager has by other roles, and those that only a process outside of the cluster needs.
var elsewhere = []Right{
	{"", "authentication.k8s.io", "tokenreviews", "create"}, {"", "authorization.k8s.io", "subjectaccessreviews", "create"},
	{"kube-system", "", "configmaps", "get"}, {"kube-system", "", "configmaps", "list"}, {"kube-system", "", "configmaps", "watch"},
	{"", "", "namespaces", "create"}, {"", "apiregistration.k8s.io", "apiservices", "create"}, {"", "apiregistration.k8s.io", "apiservices", "watch"},
	{SystemNamespace, "", "services", "get"}, {SystemNamespace, "", "services", "create"}, {SystemNamespace, "", "services", "update"}, {SystemNamespace, "", "services", "patch"},
	{SystemNamespace, "discovery.k8s.io", "endpointslices", "get"}, {SystemNamespace, "discovery.k8s.io", "endpointslices", "create"},
	{SystemNamespace, "discovery.k8s.io", "endpointslices", "update"}, {SystemNamespace, "discovery.k8s.io", "endpointslices", "patch"},
}

// ManagerRights compares what managers have asked of the API server, by its audit log, with config/rbac: what they were not
// given, and what they were given and did not use.
func (c *Cluster) ManagerRights() (missing, unused []string, err error) {
	rights, err := given()
	if err != nil {
		return nil, nil, err
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(c.AuditLog()), "audit*.log"))
	if err != nil || len(logs) == 0 {
		return nil, nil, errors.Join(err, errors.New("the cluster has no audit log: start it with --audit-log"))
	}
	used, lacking := map[Right]bool{}, map[string]bool{}
	for _, log := range logs {
		if err := eachRight(log, func(asked Right) {
			holds := func(r Right) bool {
				return (r.Namespace == "" || r.Namespace == asked.Namespace) && r.Group == asked.Group && r.Resource == asked.Resource && r.Verb == asked.Verb
			}
			found := slices.ContainsFunc(elsewhere, holds)
			for _, r := range rights {
				if holds(r) {
					found, used[r] = true, true
				}
			}
			if !found {
				lacking[asked.String()] = true
			}
		}); err != nil {
			return nil, nil, err
		}
	}
	for r := range lacking {
		missing = append(missing, r)
	}
	for _, r := range rights {
		if !used[r] {
			unused = append(unused, r.String())
		}
	}
	slices.Sort(missing)
	slices.Sort(unused)
	return missing, slices.Compact(unused), nil
}

// eachRight calls fn with what each request of a manager in an audit log needed.
func eachRight(log string, fn func(Right)) error {
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		var e struct {
			UserAgent, Verb string
			ObjectRef       *struct{ Resource, Subresource, Namespace, APIGroup string }
		}
		if json.Unmarshal(s.Bytes(), &e) != nil || e.ObjectRef == nil || !strings.HasPrefix(e.UserAgent, "skein-manager") {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		fn(Right{e.ObjectRef.Namespace, e.ObjectRef.APIGroup, resource, e.Verb})
	}
	return s.Err()
}
