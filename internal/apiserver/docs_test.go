package apiserver

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/access"
)

// granted returns what the installation's roles allow on subresources of threads: "threads/queue create".
func granted() map[string]bool {
	GinkgoHelper()
	files, err := filepath.Glob("../../config/rbac/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	out := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		Expect(err).NotTo(HaveOccurred())
		for _, doc := range strings.Split(string(data), "\n---\n") {
			var role rbacv1.ClusterRole
			Expect(yaml.Unmarshal([]byte(doc), &role)).To(Succeed(), f)
			if role.Kind != "ClusterRole" {
				continue
			}
			for _, rule := range role.Rules {
				if !slices.Contains(rule.APIGroups, runtimev1.GroupVersion.Group) {
					continue
				}
				for _, r := range rule.Resources {
					for _, v := range rule.Verbs {
						out[r+" "+v] = true
					}
				}
			}
		}
	}
	return out
}

var _ = Describe("the installation's roles", Label("K8S-04"), func() {
	It("grant each verb of each subresource", func() {
		roles := granted()
		for sub, r := range (&Server{}).handlers().routes() {
			for _, verb := range r.Verbs() {
				resource := strings.TrimSuffix(runtimev1.ThreadsResource+"/"+string(sub), "/")
				Expect(roles).To(HaveKey(resource+" "+verb), "add it to config/rbac/conversation_*_role.yaml")
			}
		}
	})

	It("name only subresources that exist", func() {
		routes := (&Server{}).handlers().routes()
		for key := range maps.Keys(granted()) {
			resource, _, _ := strings.Cut(key, " ")
			if sub, ok := strings.CutPrefix(resource, runtimev1.ThreadsResource+"/"); ok {
				Expect(routes).To(HaveKey(runtimev1.Subresource(sub)))
			}
		}
	})
})

var _ = Describe("the table of who may do what", Label("K8S-04"), func() {
	It("has a row for each verb of each route, and none besides", func() {
		table, err := access.Read("../..")
		Expect(err).NotTo(HaveOccurred())
		rows := map[string]bool{}
		for r := range table {
			if r.Door == "Runtime API" && !strings.Contains(r.Resource, "{") {
				rows[r.Verb+" "+r.Resource] = true
			}
		}
		served := map[string]bool{}
		add := func(resource string, verbs []string) {
			for _, verb := range verbs {
				served[verb+" "+resource] = true
			}
		}
		for sub, r := range (&Server{}).handlers().routes() {
			add(strings.TrimSuffix(runtimev1.ThreadsResource+"/"+string(sub), "/"), r.Verbs())
		}
		for name, v := range (&Server{}).handlers().views() {
			for _, table := range []verbs{v.Collection, v.Across, v.Named} {
				add(string(name), slices.Collect(maps.Keys(table)))
			}
			for sub, r := range v.Below {
				add(string(name)+"/"+sub, r.Verbs())
			}
		}
		Expect(rows).To(Equal(served), "write docs/rights.md anew, as CONTRIBUTING.md says")
	})

	It("gives a writer all that a reader has", func() {
		table, err := access.Read("../..")
		Expect(err).NotTo(HaveOccurred())
		for r, answers := range table {
			if answers["reader"] == access.Yes {
				Expect(answers).To(HaveKeyWithValue("writer", access.Yes), "%s: docs/install.md says that skein-conversation-writer includes what skein-conversation-reader has", r)
			}
		}
	})
})

// documented returns the rows of the guide's tables: "GET messages/{id}".
func documented() map[string]bool {
	GinkgoHelper()
	data, err := os.ReadFile("../../docs/runtime-api.md")
	Expect(err).NotTo(HaveOccurred())
	row := regexp.MustCompile("(?m)^\\| (\\(none\\)|`[^`]+`) \\| ((?:(?:, )?(?:GET|POST|PUT|PATCH|DELETE))+) \\|.*\\|.*\\|.*\\|$")
	out := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(data), -1) {
		path := strings.Trim(m[1], "`")
		if path == "(none)" {
			path = ""
		}
		// Only whether there is a path below the subresource matters.
		if head, _, nested := strings.Cut(path, "/"); nested {
			path = head + "/"
		}
		for method := range strings.SplitSeq(m[2], ", ") {
			out[method+" "+path] = true
		}
	}
	return out
}

// methods are the methods of the verbs that authorization uses.
var methods = map[string]string{"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}

var _ = Describe("the guide to the runtime API", func() {
	It("names types that the reference describes", func() {
		guide, err := os.ReadFile("../../docs/runtime-api.md")
		Expect(err).NotTo(HaveOccurred())
		reference, err := os.ReadFile("../../docs/reference/api.md")
		Expect(err).NotTo(HaveOccurred())
		for _, row := range regexp.MustCompile(`(?m)^\|.*\| ([^|]*→[^|]*) \|.*\|$`).FindAllStringSubmatch(string(guide), -1) {
			for _, name := range regexp.MustCompile(`\b[A-Z][A-Za-z]+`).FindAllString(row[1], -1) {
				if name != "Status" && name != "JSON" { // of others
					Expect(string(reference)).To(ContainSubstring("\n### "+name+"\n"), row[0])
				}
			}
		}
	})

	It("has a row for each way to call it, and none besides", func() {
		served := map[string]bool{}
		add := func(table verbs, path string) {
			for verb := range table {
				served[methods[verb]+" "+path] = true
			}
		}
		for sub, r := range (&Server{}).handlers().routes() {
			add(r.Plain, string(sub))
			add(r.Nested, string(sub)+"/")
		}
		for name, v := range (&Server{}).handlers().views() {
			add(v.Collection, string(name))
			add(v.Across, string(name))
			add(v.Named, string(name)+"/")
			for _, r := range v.Below {
				add(r.Plain, string(name)+"/")
				add(r.Nested, string(name)+"/")
			}
		}
		rows := documented()
		for key := range served {
			Expect(rows).To(HaveKey(key), "docs/runtime-api.md has no row for it: add one")
		}
		for key := range rows {
			Expect(served).To(HaveKey(key), "docs/runtime-api.md has a row for it, but it is not served")
		}
	})
})
