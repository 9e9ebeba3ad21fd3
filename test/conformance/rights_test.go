package conformance

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A manager for one namespace", Serial, Label("K8S-13"), func() {
	It("works with the rights of config/namespaced, which reach no Secret of another namespace", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		installed, err := cluster.Kubectl(ctx, "kustomize", filepath.Join(harness.Root(), "config", "namespaced"))
		Expect(err).NotTo(HaveOccurred())
		Expect(installed).To(ContainSubstring("--namespaces=team-a"))
		var rights []string
		for _, doc := range strings.Split(installed, "\n---\n") {
			for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Namespace"} {
				if strings.Contains("\n"+doc, "\nkind: "+kind+"\n") {
					rights = append(rights, strings.ReplaceAll(doc, "team-a", ns))
				}
			}
		}
		dir := GinkgoT().TempDir()
		file := filepath.Join(dir, "rights.yaml")
		Expect(os.WriteFile(file, []byte(strings.Join(rights, "\n---\n")), 0o600)).To(Succeed())
		out, err := cluster.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", file)
		Expect(err).NotTo(HaveOccurred(), out)
		DeferCleanup(func(ctx SpecContext) {
			_, err := cluster.Kubectl(ctx, "delete", "clusterrolebindings", "skein-manager-cluster", "skein-runtime-api-auth-delegator")
			Expect(err).NotTo(HaveOccurred())
		})
		// A process outside of the cluster also makes the Service that leads to it.
		outside := metav1.ObjectMeta{Namespace: harness.SystemNamespace, Name: "outside-" + ns}
		create(ctx, &rbacv1.Role{ObjectMeta: outside, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"*"}}, {APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"*"}}}},
			&rbacv1.RoleBinding{ObjectMeta: outside, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: outside.Name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.SystemNamespace, Name: "skein-manager"}}})
		may := func(verb, resource, namespace string) bool {
			GinkgoHelper()
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:skein-system:skein-manager",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: resource, Verb: verb}}}
			Expect(cluster.Client.Create(ctx, review)).To(Succeed())
			return review.Status.Allowed
		}
		Eventually(ctx, func() bool {
			return may("get", "secrets", ns) && may("list", "namespaces", "") && may("get", "services", harness.SystemNamespace)
		}).Should(BeTrue())
		for _, namespace := range []string{other, "kube-system", ""} {
			for _, verb := range []string{"get", "list", "watch", "create", "patch"} {
				Expect(may(verb, "secrets", namespace)).To(BeFalse(), "%s secrets in %q", verb, namespace)
			}
			Expect(may("create", "pods", namespace)).To(BeFalse())
		}

		token, err := cluster.Kubectl(ctx, "-n", harness.SystemNamespace, "create", "token", "skein-manager")
		Expect(err).NotTo(HaveOccurred())
		cfg := clientcmdapi.NewConfig()
		cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster.Config.Host, CertificateAuthorityData: cluster.Config.CAData, CertificateAuthority: cluster.Config.CAFile}
		cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
		cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		cfg.CurrentContext = "x"
		kubeconfig := filepath.Join(dir, "kubeconfig")
		Expect(clientcmd.WriteToFile(*cfg, kubeconfig)).To(Succeed())

		manager.Stop()
		DeferCleanup(func(ctx SpecContext) { Expect(manager.Start(ctx)).To(Succeed()) })
		log := &lines{}
		m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "data"), Log: log, Args: []string{"--kubeconfig=" + kubeconfig, "--namespaces=" + ns}})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Start(ctx)).To(Succeed())
		DeferCleanup(m.Stop)
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
	missing, unused, err := cluster.ManagerRights()
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("rights of the manager that this run did not use", ReportEntryVisibilityAlways, strings.Join(unused, "\n"))
	Expect(missing).To(BeEmpty(), "managers asked for what config/rbac/role.yaml does not give")
})
