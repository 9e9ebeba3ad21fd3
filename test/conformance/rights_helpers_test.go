package conformance

import (
	"context"
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

	"github.com/skein-dev/skein/test/harness"
)

// managerAccount is the name of an installed manager at the API server.
const managerAccount = "system:serviceaccount:skein-system:skein-manager"

// bindingsOfInstallation are the ClusterRoleBindings of every installation.
var bindingsOfInstallation = []string{"skein-manager", "skein-secret-reader", "skein-sandbox-certificates", "skein-runtime-api-auth-delegator"}

// applyRights applies what an installation says about rights, with these arguments of kubectl apply besides.
func applyRights(ctx context.Context, installed string, args ...string) {
	GinkgoHelper()
	var rights []string
	for _, doc := range strings.Split(installed, "\n---\n") {
		for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Namespace"} {
			if strings.Contains("\n"+doc, "\nkind: "+kind+"\n") {
				rights = append(rights, doc)
			}
		}
	}
	file := filepath.Join(GinkgoT().TempDir(), "rights.yaml")
	Expect(os.WriteFile(file, []byte(strings.Join(rights, "\n---\n")), 0o600)).To(Succeed())
	out, err := cluster.Kubectl(ctx, append([]string{"apply", "-f", file}, args...)...)
	Expect(err).NotTo(HaveOccurred(), out)
}

// installRights applies the RBAC objects of config/persistent, and then those of another installation over them. It also grants the manager's
// service account the rights that only a process outside of the cluster needs. more are further ClusterRoleBindings of the other installation.
func installRights(ctx context.Context, installed string, more ...string) {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) {
		_, err := cluster.Kubectl(ctx, append(append([]string{"delete", "clusterrolebindings"}, bindingsOfInstallation...), more...)...)
		Expect(err).NotTo(HaveOccurred())
	})
	before, err := cluster.Kubectl(ctx, "kustomize", filepath.Join(harness.Root(), "config", "persistent"))
	Expect(err).NotTo(HaveOccurred())
	for _, args := range [][]string{nil, {"--server-side", "--force-conflicts"}} { // both ways of kubectl
		applyRights(ctx, before, args...)
		Eventually(ctx, func() bool { return managerMay(ctx, "get", "secrets", "") && managerMay(ctx, "create", "pods", "") }).Should(BeTrue())
		applyRights(ctx, installed, args...)
		Eventually(ctx, func() bool { return managerMay(ctx, "get", "secrets", "") || managerMay(ctx, "create", "secrets", "") }).Should(BeFalse(),
			"an installation keeps no right that the new one does not give, with kubectl apply %v", args)
	}
	// A process outside of the cluster also makes the Service that leads to it, and waits until the API server reaches it.
	outside := metav1.ObjectMeta{Namespace: harness.SystemNamespace, GenerateName: "outside-"}
	role := &rbacv1.Role{ObjectMeta: outside, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"*"}}, {APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"*"}}}}
	create(ctx, role)
	create(ctx, &rbacv1.RoleBinding{ObjectMeta: outside, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.SystemNamespace, Name: "skein-manager"}}})
	waits := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "outside-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"create", "watch"}}}}
	create(ctx, waits)
	bound := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "outside-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: waits.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.SystemNamespace, Name: "skein-manager"}}}
	create(ctx, bound)
	DeferCleanup(func(ctx SpecContext) {
		Expect(cluster.Client.Delete(ctx, bound)).To(Succeed())
		Expect(cluster.Client.Delete(ctx, waits)).To(Succeed())
	})
	Eventually(ctx, func() bool { return managerMay(ctx, "get", "services", harness.SystemNamespace) }).Should(BeTrue())
}

// managerMay asks what the manager's service account may do with a core resource.
func managerMay(ctx context.Context, verb, resource, namespace string) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: managerAccount,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: resource, Verb: verb}}}
	Expect(cluster.Client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// startInstalled stops the manager that the specs share, and starts one with the rights of the manager's service account until the
// spec ends.
func startInstalled(ctx context.Context, log *lines, args ...string) *harness.Manager {
	GinkgoHelper()
	token, err := cluster.Kubectl(ctx, "-n", harness.SystemNamespace, "create", "token", "skein-manager")
	Expect(err).NotTo(HaveOccurred())
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster.Config.Host, CertificateAuthorityData: cluster.Config.CAData, CertificateAuthority: cluster.Config.CAFile}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(clientcmd.WriteToFile(*cfg, kubeconfig)).To(Succeed())

	manager.Stop()
	DeferCleanup(func(ctx SpecContext) { Expect(manager.Start(ctx)).To(Succeed()) })
	m, err := cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(dir, "data"), Log: log, Args: append([]string{"--kubeconfig=" + kubeconfig}, args...)})
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Start(ctx)).To(Succeed())
	DeferCleanup(m.Stop)
	return m
}
