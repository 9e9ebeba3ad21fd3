package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// auditArgs are the flags with which a manager records the requests to its runtime API in a folder, by the policy that is
// installed.
func auditArgs(dir string) []string {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(harness.Root(), "config", "manager", "audit.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var installed struct{ Data map[string]string }
	Expect(yaml.Unmarshal(data, &installed)).To(Succeed())
	policy := filepath.Join(dir, "audit-policy.yaml")
	Expect(os.WriteFile(policy, []byte(installed.Data["policy.yaml"]), 0o600)).To(Succeed())
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(dir)}
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// audited is a line of the audit log.
type audited struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus          struct{ Code int }
}

var _ = Describe("The runtime API", Label("K8S-12"), func() {
	It("records who read or changed which thread over every path, without the contents", func(ctx SpecContext) {
		const canary = "canary-5d2f0c"
		t, raw := echoing(ctx)
		say(ctx, t, 1, canary)
		_, err := raw.WriteFile(ctx, "/note", bytes.NewReader([]byte(canary)), runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = api().Search(ctx, canary, runtimeclient.SearchOptions{Namespace: t.Namespace})
		Expect(err).NotTo(HaveOccurred())
		token, err := cluster.Token(ctx, t.Namespace, "reader")
		Expect(err).NotTo(HaveOccurred())
		direct, err := cluster.Direct(ctx, manager, token)
		Expect(err).NotTo(HaveOccurred())
		_, err = direct.Thread(t.Namespace, t.Name).Messages(ctx, runtimeclient.MessageOptions{})
		Expect(err).NotTo(HaveOccurred())
		stranger, err := cluster.Direct(ctx, manager, "no-token")
		Expect(err).NotTo(HaveOccurred())
		_, err = stranger.Thread(t.Namespace, t.Name).WriteFile(ctx, "/note", bytes.NewReader([]byte(canary)), runtimeclient.WriteFileOptions{})
		Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)
		lines := func() (list []audited) {
			data, err := os.ReadFile(auditLog(filepath.Dir(manager.Dir)))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(data)).NotTo(ContainSubstring(canary))
			for _, line := range bytes.Split(data, []byte("\n")) {
				var one audited
				if json.Unmarshal(line, &one) == nil && one.ObjectRef.Namespace == t.Namespace {
					list = append(list, one)
				}
			}
			return list
		}
		of := func(verb, subresource, user string) OmegaMatcher {
			return ContainElement(And(HaveField("Verb", verb), HaveField("User.Username", HavePrefix(user)), HaveField("ResponseStatus.Code", BeNumerically("<", 300)),
				HaveField("ObjectRef", And(HaveField("Resource", "threads"), HaveField("Subresource", subresource), HaveField("Name", t.Name)))))
		}
		Eventually(ctx, lines).Should(And(of("create", "queue", ""), of("get", "messages", "system:serviceaccount:"+t.Namespace+":reader"), of("update", "files", "")))
		Eventually(ctx, func() (wrote []string) { // the answer to a write begins when it has ended, so there is one entry
			for _, one := range lines() {
				if one.Verb == "update" && one.ObjectRef.Subresource == "files" {
					wrote = append(wrote, fmt.Sprint(one.Stage, " ", one.ResponseStatus.Code))
				}
			}
			return wrote
		}).Should(ConsistOf("ResponseComplete 201", "ResponseStarted 401"))
		all, err := os.ReadFile(auditLog(filepath.Dir(manager.Dir)))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(all)).To(ContainSubstring(`"requestURI":"/apis/runtime.skein.dev/v1alpha1/searches"`))
	})

	It("serves other users while one user floods it", func(ctx SpecContext) {
		t, _ := echoing(ctx)
		say(ctx, t, 1, "hello")
		name := "searchers-" + t.Namespace
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"searches"}, Verbs: []string{"list"}},
			{APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"threads/messages"}, Verbs: []string{"get"}}}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "flood"}, {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "calm"}}}
		create(ctx, role, binding)
		DeferCleanup(func(ctx SpecContext) {
			Expect(cluster.Client.Delete(ctx, binding)).To(Succeed())
			Expect(cluster.Client.Delete(ctx, role)).To(Succeed())
		})
		get := func(user, path string) (code int, retry, body string) {
			GinkgoHelper()
			cfg := rest.CopyConfig(cluster.Config)
			cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
			c, err := rest.HTTPClientFor(cfg)
			Expect(err).NotTo(HaveOccurred())
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/apis/runtime.skein.dev/v1alpha1/"+path, nil)
			Expect(err).NotTo(HaveOccurred())
			resp, err := c.Do(r)
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = resp.Body.Close() }()
			data, err := io.ReadAll(resp.Body)
			Expect(err).NotTo(HaveOccurred())
			return resp.StatusCode, resp.Header.Get("Retry-After"), string(data)
		}
		code := func(user, path string) int { c, _, _ := get(user, path); return c }
		messages := "namespaces/" + t.Namespace + "/threads/" + t.Name + "/messages"
		Eventually(ctx, func() int { return code("calm", messages) }).Should(Equal(200))
		var refused atomic.Int32
		var group sync.WaitGroup
		for range 40 {
			group.Go(func() {
				defer GinkgoRecover()
				code, retry, body := get("flood", "searches?q=hello")
				if code == http.StatusTooManyRequests {
					refused.Add(1)
					Expect(retry).NotTo(BeEmpty())
					Expect(body).To(And(ContainSubstring("try again later"), ContainSubstring("FlowControl")))
					return
				}
				Expect(code).To(Equal(200), body)
			})
		}
		group.Wait()
		Expect(refused.Load()).NotTo(BeZero())
		Expect(code("calm", "searches?q=hello")).To(Equal(200))
		Expect(code("flood", messages)).To(Equal(200), "searches have a budget of their own")
	})
})
