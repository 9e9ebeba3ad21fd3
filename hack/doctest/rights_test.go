package doctest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/skein-dev/skein/test/access"
)

// TestRightsOfTheManagerHaveReasons expects a row of docs/install.md for each right in config/rbac/role.yaml, with exactly its
// verbs, so that a right is not widened without a reason that people can read.
func TestRightsOfTheManagerHaveReasons(t *testing.T) {
	role, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{} // verbs by group and resource
	_, section, _ := strings.Cut(string(page), "\n## What the manager may do\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[3], "`") {
			continue
		}
		for i, resource := range strings.Split(cells[3], "`") {
			if i%2 == 1 {
				key := strings.Trim(cells[1], " `") + ": " + strings.TrimSpace(cells[2]) + " " + resource
				documented[key] = append(documented[key], strings.Split(strings.TrimSpace(cells[4]), ", ")...)
			}
		}
	}
	given := map[string][]string{}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(role), 4096); ; {
		var r rbacv1.ClusterRole
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if r.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				group := rule.APIGroups[0]
				if group == "" {
					group = "core"
				}
				key := r.Name + ": " + group + " " + resource
				given[key] = append(given[key], rule.Verbs...)
			}
		}
	}
	for key, verbs := range given {
		slices.Sort(verbs)
		if said := slices.Sorted(slices.Values(documented[key])); !slices.Equal(said, verbs) {
			t.Errorf("docs/install.md says that the manager may %v by %s, and config/rbac/role.yaml says %v", said, key, verbs)
		}
	}
	for key := range documented {
		if given[key] == nil {
			t.Errorf("docs/install.md gives a reason for %s, which config/rbac/role.yaml does not give to the manager", key)
		}
	}
}

// TestRightsHaveARowForEachKind expects rows of docs/rights.md for each verb that the API server serves of each kind. A conformance
// spec asks a real one; this finds what is forgotten without a cluster.
func TestRightsHaveARowForEachKind(t *testing.T) {
	table, err := access.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no CRDs", err)
	}
	served := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		served[crd.Spec.Names.Plural] = true
		verbs := map[string][]string{crd.Spec.Names.Plural: {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}}
		if s := crd.Spec.Versions[0].Subresources; s != nil && s.Status != nil {
			served[crd.Spec.Names.Plural+"/status"] = true
			verbs[crd.Spec.Names.Plural+"/status"] = []string{"get", "patch", "update"}
		}
		for resource, verbs := range verbs {
			for _, verb := range verbs {
				if table[access.Row{Door: "Objects", Resource: resource, Verb: verb}] == nil {
					t.Errorf("%s has no row for %s %s: write it anew, as CONTRIBUTING.md says", access.Page, verb, resource)
				}
			}
		}
	}
	for r := range table {
		if r.Door == "Objects" && !served[r.Resource] {
			t.Errorf("%s has a row for %s, which no CRD has", access.Page, r.Resource)
		}
	}
}
