package conformance

import (
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Lists of threads", func() {
	It("show each thread in short, newest activity first, filtered and in pages", Label("THR-15"), func(ctx SpecContext) {
		raw, t := echoing(ctx, func(s *skeinv1.ThreadSpec) { s.UserID, s.TaskID = "ada", "ticket-7" })
		ns := raw.Namespace
		for _, name := range []string{"b", "c"} {
			create(ctx, harness.NewThread(ns, name, "agent"))
			ready(ctx, cluster.Thread(ns, name))
		}
		say(ctx, raw, 1, "hello")
		Expect(raw.WriteFile(ctx, "/a.txt", "text/plain", []byte("1"))).To(Succeed())
		Expect(raw.WriteFile(ctx, "/a.txt", "text/plain", []byte("2"))).To(Succeed())
		mode, tags := "rush", []string{"x"}
		record, err := t.Update(ctx, runtimev1.ThreadPatch{AgentMode: &mode, Workspace: &runtimev1.WorkspacePatch{Tags: &tags}})
		Expect(err).NotTo(HaveOccurred())

		c := runtimeAs("")
		names := func(o runtimeclient.HistoryOptions) (names []string) {
			GinkgoHelper()
			for {
				list, err := c.History(ctx, ns, o)
				Expect(err).NotTo(HaveOccurred())
				for _, i := range list.Items {
					names = append(names, i.Name)
				}
				Expect(list.HasMore).To(Equal(list.Continue != ""))
				if o.Continue = list.Continue; o.Continue == "" {
					return names
				}
			}
		}
		Expect(names(runtimeclient.HistoryOptions{})).To(Equal([]string{"thread", "c", "b"}))
		Expect(names(runtimeclient.HistoryOptions{Limit: 1})).To(Equal([]string{"thread", "c", "b"}))
		Expect(names(runtimeclient.HistoryOptions{User: "ada"})).To(Equal([]string{"thread"}))
		Expect(names(runtimeclient.HistoryOptions{Task: "ticket-7", Agent: "agent"})).To(Equal([]string{"thread"}))
		Expect(names(runtimeclient.HistoryOptions{Agent: "nobody"})).To(BeEmpty())

		list, err := c.History(ctx, ns, runtimeclient.HistoryOptions{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		item := list.Items[0]
		Expect(item).To(And(HaveField("ThreadID", record.ThreadID), HaveField("V", record.V), HaveField("Created", record.CreatedAt), HaveField("Title", BeNil()),
			HaveField("UserID", HaveValue(Equal("ada"))), HaveField("AgentMode", "rush"), HaveField("Archived", false), HaveField("Workspace.Tags", tags),
			HaveField("ParentRelationships", BeEmpty()), HaveField("OriginThreadID", ""), HaveField("MainThreadID", "")))
		Expect(item.SummaryStats).To(Equal(runtimev1.SummaryStats{MessageCount: 2, DiffStats: runtimev1.DiffStats{Added: 1, Changed: 1}}))
		Expect(item.UserLastInteractedAt).To(BeNumerically(">", item.Created))

		all, err := c.History(ctx, "", runtimeclient.HistoryOptions{User: "ada"})
		Expect(err).NotTo(HaveOccurred())
		Expect(all.Items).To(ContainElement(HaveField("ThreadID", record.ThreadID)), "over all namespaces")
		table, err := cluster.Kubectl(ctx, "get", "history", "-n", ns, "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(table).To(ContainSubstring("thread"))
	}, SpecTimeout(3*time.Minute))

	It("hide what is archived unless asked for, and show it again", Label("THR-08"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		say(ctx, raw, 1, "one")
		c := runtimeAs("")
		shown := func(archived string) int {
			GinkgoHelper()
			list, err := c.History(ctx, raw.Namespace, runtimeclient.HistoryOptions{Archived: archived})
			Expect(err).NotTo(HaveOccurred())
			return len(list.Items)
		}
		out, err := cluster.Plugin(ctx, "-n", raw.Namespace, "archive", raw.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("archived"))
		Expect([]int{shown(""), shown("true"), shown("all")}).To(Equal([]int{0, 1, 1}))
		Expect(t.Get(ctx)).To(HaveField("Archived", true))
		Expect(texts(say(ctx, raw, 2, "two"))).To(HaveLen(4), "it can still be read, and works")
		out, err = cluster.Plugin(ctx, "-n", raw.Namespace, "history")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).NotTo(ContainSubstring(raw.Name + " "))
		_, err = cluster.Plugin(ctx, "-n", raw.Namespace, "unarchive", raw.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{shown(""), shown("true"), shown("all")}).To(Equal([]int{1, 0, 1}))
		out, err = cluster.Plugin(ctx, "-n", raw.Namespace, "history")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(raw.Name + " "))
	}, SpecTimeout(2*time.Minute))

	It("find a thread by any form of its id, in the namespaces that one may read", Label("THR-16", "IDS-01"), func(ctx SpecContext) {
		_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "config", "rbac", "lookup_role.yaml"))
		Expect(err).NotTo(HaveOccurred())
		mine, _ := echoing(ctx)
		theirs, other := echoing(ctx)
		o, err := mine.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		hidden, err := other.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		create(ctx,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: "read"},
				Rules: []rbacv1.PolicyRule{{APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads", "history"}, Verbs: []string{"get", "list"}}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: "read"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "read"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader-" + mine.Namespace}}},
		)
		reader := runtimeAs("reader-" + mine.Namespace)
		id := string(o.UID)
		hex := strings.ReplaceAll(id, "-", "")
		Eventually(ctx, func() error { _, err := reader.Lookup(ctx, id); return err }).Should(Succeed(), "the right takes effect")
		for _, form := range []string{id, "T-" + id, "t-" + strings.ToUpper(id), "thrd_" + hex, hex[20:], "thread"} {
			Expect(reader.Lookup(ctx, form)).To(And(HaveField("ThreadID", id), HaveField("Namespace", mine.Namespace)), form)
		}
		Expect(runtimeAs("").Thread(mine.Namespace, hex[20:]).Get(ctx)).To(HaveField("ThreadID", id))
		for _, form := range []string{hidden.ThreadID, "T-" + hidden.ThreadID, "nobody"} {
			_, err := reader.Lookup(ctx, form)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", form, err)
		}
		Expect(reader.History(ctx, mine.Namespace, runtimeclient.HistoryOptions{})).To(HaveField("Items", HaveLen(1)))
		_, err = reader.History(ctx, theirs.Namespace, runtimeclient.HistoryOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		_, err = reader.History(ctx, "", runtimeclient.HistoryOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(3*time.Minute))
})
