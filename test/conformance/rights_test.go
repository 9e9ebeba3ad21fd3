package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A manager for one namespace", Serial, Label("K8S-13"), func() {
	It("works with the rights of config/namespaced, which reach no Secret of another namespace, also after it served all of them", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		installed, err := cluster.Kubectl(ctx, "kustomize", filepath.Join(harness.Root(), "config", "namespaced"))
		Expect(err).NotTo(HaveOccurred())
		Expect(installed).To(ContainSubstring("--namespaces=team-a"))
		installRights(ctx, strings.ReplaceAll(installed, "team-a", ns), "skein-manager-cluster")
		may := func(verb, resource, namespace string) bool { return managerMay(ctx, verb, resource, namespace) }
		Eventually(ctx, func() bool {
			return may("get", "secrets", ns) && may("create", "secrets", ns) && may("list", "namespaces", "")
		}).Should(BeTrue())
		for _, namespace := range []string{other, "kube-system", ""} {
			for _, verb := range []string{"get", "list", "watch", "create", "patch"} {
				Expect(may(verb, "secrets", namespace)).To(BeFalse(), "%s secrets in %q", verb, namespace)
			}
			Expect(may("create", "pods", namespace)).To(BeFalse())
		}

		log := &lines{}
		startInstalled(ctx, log, "--namespaces="+ns)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(last(say(ctx, t, 1, "hello"))).NotTo(BeEmpty())
		Expect(log.String()).NotTo(ContainSubstring("unknown namespace"), "it looks at other Namespaces")
	})
})

// rightsEnv has the suite compare what its managers asked of the API server with what config/rbac gives them. The audit log that
// this needs grows by gigabytes in a run of everything.
const rightsEnv = "SKEIN_RIGHTS"

var _ = AfterSuite(func() {
	if os.Getenv(rightsEnv) == "" || cluster == nil {
		return
	}
	use, err := cluster.ManagerRights()
	Expect(err).NotTo(HaveOccurred())
	Expect(use.Missing).To(BeEmpty(), "managers asked for what config/rbac/role.yaml does not give")
	Expect(use.Refused).To(BeEmpty(), "managers were refused what they are given")
	if !wholeRun() {
		AddReportEntry("rights of the manager that this run did not use", ReportEntryVisibilityAlways, strings.Join(use.Unused, "\n"))
		return
	}
	unused := slices.DeleteFunc(use.Unused, harness.MaybeUnused)
	Expect(unused).To(ConsistOf(slices.Sorted(maps.Keys(harness.UnusedRights))), "rights that no spec uses have a reason in harness.UnusedRights, or go")
})

// wholeRun reports whether this is a run of all specs but those of outages, which have a cluster of their own.
func wholeRun() bool {
	suite, _ := GinkgoConfiguration()
	return len(suite.FocusStrings) == 0 && len(suite.SkipStrings) == 0 && len(suite.FocusFiles) == 0 && len(suite.SkipFiles) == 0 &&
		(suite.LabelFilter == "" || suite.LabelFilter == "!outages") && !onV8
}
