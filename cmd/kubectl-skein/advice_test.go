package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/skein-dev/skein/internal/store"
)

// installedRoles returns the rules of the ClusterRoles for users that config/rbac installs, by name.
func installedRoles() map[string][]rbacv1.PolicyRule {
	GinkgoHelper()
	files, err := filepath.Glob("../../config/rbac/*_role.yaml")
	Expect(err).NotTo(HaveOccurred())
	roles := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		var role rbacv1.ClusterRole
		first, _, _ := strings.Cut(string(text), "\n---\n")
		Expect(yaml.UnmarshalStrict([]byte(first), &role)).To(Succeed(), file)
		roles[role.Name] = role.Rules
	}
	Expect(len(roles)).To(BeNumerically(">=", 7))
	return roles
}

func grants(rules []rbacv1.PolicyRule, verb, resource, group string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

var _ = Describe("The advice after a refusal", Label("K8S-04"), func() {
	It("names a role that has the right, for every right that a role has", func() {
		roles := installedRoles()
		for name, rules := range roles {
			for _, rule := range rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							role := roleFor(verb, resource, group)
							Expect(grants(roles[role], verb, resource, group)).To(BeTrue(), "%s: %s %s.%s: %q does not have it", name, verb, resource, group, role)
						}
					}
				}
			}
		}
	})

	DescribeTable("is given where a role helps, and nowhere else", func(err error, want string) {
		var out bytes.Buffer
		printError(&out, err)
		_, advice, _ := strings.Cut(out.String(), "\n")
		Expect(strings.TrimSpace(advice)).To(Equal(want))
	},
		Entry("approving", rbac("create", "threads/approvals"), "The ClusterRole skein-approver has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("variables", rbac("update", "threads/env"), "The ClusterRole skein-env-editor has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("reading", rbac("get", "threads/messages"), "The ClusterRole skein-conversation-reader has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("sending", rbac("create", "threads/queue"), "The ClusterRole skein-conversation-writer has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("code over a WebSocket", rbac("get", "threads/code"), "The ClusterRole skein-conversation-writer has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("canceling a firing", rbac("create", "firings/cancel"), "The ClusterRole skein-editor has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("all namespaces", apierrors.NewForbidden(schema.GroupResource{Group: "runtime.skein.dev", Resource: "history"}, "",
			fmt.Errorf(`User "bob" cannot list resource "history" in API group "runtime.skein.dev" at the cluster scope`)),
			"The ClusterRole skein-conversation-reader has this right: ask for a ClusterRoleBinding to it, or name one namespace with -n."),
		Entry("objects of Skein", apierrors.NewForbidden(schema.GroupResource{Group: "skein.dev", Resource: "threads"}, "",
			fmt.Errorf(`User "bob" cannot list resource "threads" in API group "skein.dev" in the namespace "demo"`)),
			"The ClusterRole skein-viewer has this right: ask for a RoleBinding to it in the namespace demo."),
		Entry("an object that does not exist", apierrors.NewNotFound(schema.GroupResource{Group: "skein.dev", Resource: "scheduledeffects"}, "x"),
			"Check the name and the namespace: kubectl get scheduledeffects lists those that exist."),
		Entry("what is not Skein's", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
			fmt.Errorf(`User "bob" cannot list resource "pods" in API group "" in the namespace "demo"`)), ""),
		Entry("a ResourceQuota", apierrors.NewForbidden(schema.GroupResource{Group: "skein.dev", Resource: "threads"}, "x",
			fmt.Errorf("exceeded quota: threads, requested: count/threads.skein.dev=1, used: count/threads.skein.dev=5, limited: count/threads.skein.dev=5")), ""),
		Entry("Skein's own quota", forbidden((&store.QuotaError{Resource: "bytes"}).Error()), ""),
		Entry("admission", forbidden(`thread "x" is forbidden: violates PodSecurity "restricted:latest"`), ""),
	)

	It("is given by the command that was refused", Label("RUN-11"), func(ctx SpecContext) {
		c := &command{ctx: ctx}
		var err error
		c.ns, err = env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = env.Thread(ctx, c.ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "bob")
		_, err = env.Kubeconfig("bob", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Allow(ctx, c.ns, "bob", installedRoles()["skein-conversation-writer"]...)).To(Succeed())
		Expect(c.run("approve", "hello", "call_1").err).To(And(HavePrefix("Error from server (Forbidden): "),
			HaveSuffix("The ClusterRole skein-approver has this right: ask for a RoleBinding to it in the namespace "+c.ns+".\n")))
		Expect(c.run("env", "set", "hello", "A=b").err).To(ContainSubstring("skein-env-editor"))
	})

	DescribeTable("conversation roles alone show the tree", func(ctx SpecContext, role string) {
		c := &command{ctx: ctx}
		var err error
		c.ns, err = env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		obj, _, err := env.Thread(ctx, c.ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		tree(ctx, c.ns, obj)
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "user")
		_, err = env.Kubeconfig(role, c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Allow(ctx, c.ns, role, installedRoles()[role]...)).To(Succeed())
		got := c.run("tree", "hello")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(And(ContainSubstring("Thread/hello"), ContainSubstring("Subagent/audit"), ContainSubstring("ScheduledEffect/remind")))
		Expect(got.err).To(Equal("(without pods: you may not list them)\n"))
	},
		Entry("of readers", "skein-conversation-reader"),
		Entry("of writers", "skein-conversation-writer"),
	)
})

// rbac is the answer of the API server to a request without the right.
func rbac(verb, resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "runtime.skein.dev", Resource: "threads"}, "hello",
		fmt.Errorf("User %q cannot %s resource %q in API group %q in the namespace %q", "bob", verb, resource, "runtime.skein.dev", "demo"))
}

func forbidden(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: message}}
}
