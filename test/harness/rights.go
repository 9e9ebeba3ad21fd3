package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
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

// covers reports whether who has this right has the other one, too.
func (r Right) covers(asked Right) bool {
	return (r.Namespace == "" || r.Namespace == asked.Namespace) && r.Group == asked.Group && r.Resource == asked.Resource && r.Verb == asked.Verb
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
						if r := (Right{role.Namespace, group, resource, verb}); !slices.Contains(rights, r) {
							rights = append(rights, r)
						}
					}
				}
			}
		}
	}
}

// RightsUse is how what managers asked of the API server differs from what they are given. Each list is sorted.
type RightsUse struct {
	Missing []string // what they asked for and are not given
	Unused  []string // what they are given and did not ask for
	Refused []string // what they were refused although they are given it, with the API server's words
}

// ManagerRights compares what managers have asked of the API server, by its audit log, with config/rbac.
func (c *Cluster) ManagerRights() (RightsUse, error) {
	rights, err := given()
	if err != nil {
		return RightsUse{}, err
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(c.AuditLog()), "audit*.log"))
	if err != nil || len(logs) == 0 {
		return RightsUse{}, errors.Join(err, errors.New("the cluster has no audit log: start it with --audit-log"))
	}
	u := usage{given: rights, used: map[Right]bool{}, missing: map[string]bool{}, refused: map[string]bool{}}
	for _, log := range logs {
		if err := u.read(log); err != nil {
			return RightsUse{}, err
		}
	}
	return u.sum(), nil
}

// usage collects the requests of managers.
type usage struct {
	given            []Right
	used             map[Right]bool
	missing, refused map[string]bool
}

// read adds the requests in an audit log.
func (u *usage) read(log string) error {
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		u.line(s.Bytes())
	}
	return s.Err()
}

// line adds one request, unless it is none of a manager.
func (u *usage) line(text []byte) {
	var e struct {
		UserAgent, Verb string
		ObjectRef       *struct{ Resource, Subresource, Namespace, APIGroup string }
		ResponseStatus  struct {
			Code    int
			Message string
		}
	}
	if json.Unmarshal(text, &e) != nil || e.ObjectRef == nil || !strings.HasPrefix(e.UserAgent, "skein-manager") {
		return
	}
	asked := Right{e.ObjectRef.Namespace, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
	if e.ObjectRef.Subresource != "" {
		asked.Resource += "/" + e.ObjectRef.Subresource
	}
	found := slices.ContainsFunc(elsewhere, func(r Right) bool { return r.covers(asked) })
	for _, r := range u.given {
		if r.covers(asked) {
			found, u.used[r] = true, true
		}
	}
	if !found {
		u.missing[asked.String()] = true
	}
	if e.ResponseStatus.Code == http.StatusForbidden && !refusedByDesign(e.ResponseStatus.Message) {
		asked.Namespace = ""
		u.refused[fmt.Sprintf("%s: %s", asked, e.ResponseStatus.Message)] = true
	}
}

func (u *usage) sum() RightsUse {
	sum := RightsUse{Missing: slices.Sorted(maps.Keys(u.missing)), Refused: slices.Sorted(maps.Keys(u.refused))}
	for _, r := range u.given {
		if !u.used[r] {
			sum.Unused = append(sum.Unused, r.String())
		}
	}
	slices.Sort(sum.Unused)
	return sum
}
