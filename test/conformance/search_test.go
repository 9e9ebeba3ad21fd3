package conformance

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// readerOf returns the runtime API as a user who may search, and read the messages of one namespace.
func readerOf(ctx context.Context, ns string) *runtimeclient.Client {
	GinkgoHelper()
	user := "reader-of-" + ns
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"threads", "threads/messages"}, Verbs: []string{"get"},
	}}}
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"searches"}, Verbs: []string{"list"},
	}}}
	create(ctx, role, everywhere,
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}})
	DeferCleanup(func(ctx SpecContext) {
		Expect(cluster.Client.Delete(ctx, everywhere)).To(Succeed())
		Expect(cluster.Client.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}})).To(Succeed())
	}, NodeTimeout(patience))
	cfg := rest.CopyConfig(cluster.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := runtimeclient.New(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("A search of messages", func() {
	It("finds what was said where the caller may read it, and nothing else", Label("THR-16"), func(ctx SpecContext) {
		mine, other := namespace(ctx), namespace(ctx)
		t := conversation(converse(ctx, mine, nil, []skeinv1.ScriptStep{harness.Echo()}))
		u := conversation(converse(ctx, other, nil, []skeinv1.ScriptStep{harness.Echo()}))
		inject := func(t *runtimeclient.Thread, id, text string) {
			GinkgoHelper()
			_, err := t.Inject(ctx, runtimev1.NewMessage{ID: id, Content: text})
			Expect(err).NotTo(HaveOccurred())
		}
		inject(t, "m1", "The xylophone was tuned last week")
		inject(t, "m2", "Last xylophone, weekly")
		inject(u, "m3", "Another xylophone of others")

		reader := readerOf(ctx, mine)
		found := func(g Gomega, c *runtimeclient.Client, text string, o runtimeclient.SearchOptions) []string {
			l, err := c.Search(ctx, text, o)
			g.Expect(err).NotTo(HaveOccurred())
			ids := []string{}
			for _, h := range l.Hits {
				g.Expect(h.Snippet).To(ContainSubstring("ylophone"))
				ids = append(ids, h.Namespace+"/"+h.Thread+"/"+h.Message.ID)
			}
			return ids
		}
		one, two, three := mine+"/thread/m1", mine+"/thread/m2", other+"/thread/m3"
		Eventually(ctx, func(g Gomega) { // rights take a moment
			g.Expect(found(g, reader, "xylophone", runtimeclient.SearchOptions{})).To(ConsistOf(one, two))
		}).Should(Succeed())
		here := NewWithT(GinkgoT())
		all, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		Expect(found(here, all, "xylophone", runtimeclient.SearchOptions{})).To(ConsistOf(one, two, three))
		Expect(found(here, reader, "xylophone", runtimeclient.SearchOptions{Namespace: other})).To(BeEmpty())
		Expect(found(here, reader, "xylophone", runtimeclient.SearchOptions{Thread: "thread"})).To(ConsistOf(one, two))
		Expect(found(here, reader, `"xylophone was"`, runtimeclient.SearchOptions{})).To(ConsistOf(one))
		Expect(found(here, reader, "xylo* -tuned", runtimeclient.SearchOptions{})).To(ConsistOf(two))
		page, err := reader.Search(ctx, "xylophone", runtimeclient.SearchOptions{Page: runtimeclient.Page{Limit: 1}})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Hits).To(HaveLen(1))
		Expect(page.HasMore).To(BeTrue())

		By("seeing edits and deletions at once")
		text := "a xylophone no more tuned but sold"
		_, err = t.UpdateMessage(ctx, "m1", runtimev1.MessageUpdates{Content: &text})
		Expect(err).NotTo(HaveOccurred())
		Expect(found(here, reader, "week", runtimeclient.SearchOptions{})).To(BeEmpty())
		Expect(found(here, reader, "sold", runtimeclient.SearchOptions{})).To(ConsistOf(one))
		Expect(t.DeleteMessage(ctx, "m2")).To(BeTrue())
		Expect(found(here, reader, "xylophone", runtimeclient.SearchOptions{})).To(ConsistOf(one))

		By("refusing nothing that a person writes but a search for nothing")
		Expect(found(here, reader, `sold" OR ) NEAR( ' ; --`, runtimeclient.SearchOptions{})).To(BeEmpty())
		_, err = reader.Search(ctx, "-sold", runtimeclient.SearchOptions{})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)

		out, err := cluster.Plugin(ctx, "search", "sold", "-n", mine)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("thread"), ContainSubstring("sold")))
		Expect(cluster.Plugin(ctx, "search", "violin", "--thread", "thread", "-n", mine)).To(Equal("Nothing found.\n"))
		_, err = cluster.Plugin(ctx, "search", "sold", "--thread", "nope", "-n", mine)
		Expect(err).To(MatchError(ContainSubstring(`"nope" not found`)))
	}, SpecTimeout(3*time.Minute))

	It("finds nothing of an earlier namespace of the same name, nor do lists and lookups", Label("THR-16", "THR-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadSpec) { s.DeletionPolicy = skeinv1.DeletionRetain })
		_, err := conversation(t).Inject(ctx, runtimev1.NewMessage{Content: "remember the xylophone"})
		Expect(err).NotTo(HaveOccurred())
		id := must(t.Object(ctx)).ThreadID()
		counts := func() []int {
			GinkgoHelper()
			var n []int
			for _, in := range []string{ns, ""} {
				hits, err := api().Search(ctx, "remember the xylophone", runtimeclient.SearchOptions{Namespace: in, Thread: id})
				Expect(err).NotTo(HaveOccurred())
				list, err := api().History(ctx, in, runtimeclient.HistoryOptions{Limit: runtimev1.MaxPageSize})
				Expect(err).NotTo(HaveOccurred())
				listed := slices.DeleteFunc(list.Items, func(i runtimev1.ThreadHistory) bool { return i.ThreadID != id })
				n = append(n, len(hits.Hits), len(listed))
			}
			return n
		}
		Expect(counts()).To(Equal([]int{1, 1, 1, 1}))

		_, err = cluster.Kubectl(ctx, "delete", "namespace", ns, "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
		create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		Expect(counts()).To(Equal([]int{0, 0, 0, 0}))
		_, err = api().Lookup(ctx, id)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))
})
