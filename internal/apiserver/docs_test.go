package apiserver

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// granted collects what the installation's roles allow on subresources of threads: "threads/queue create".
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
	It("grant each verb of each subresource to somebody", func() {
		roles := granted()
		for sub, r := range (&Server{}).routes() {
			for _, verb := range r.verbs() {
				resource := strings.TrimSuffix(runtimev1.ThreadsResource+"/"+string(sub), "/")
				Expect(roles).To(HaveKey(resource+" "+verb), "add it to config/rbac/conversation_*_role.yaml")
			}
		}
	})

	It("name no subresource that is not there", func() {
		routes := (&Server{}).routes()
		for key := range maps.Keys(granted()) {
			resource, _, _ := strings.Cut(key, " ")
			if sub, ok := strings.CutPrefix(resource, runtimev1.ThreadsResource+"/"); ok {
				Expect(routes).To(HaveKey(runtimev1.Subresource(sub)))
			}
		}
	})
})
