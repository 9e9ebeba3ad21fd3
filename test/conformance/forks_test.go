package conformance

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// forkOf is a Thread that is forked from another, at an index or else at the newest message.
func forkOf(ns, name, origin string, index ...int64) *skeinv1.Thread {
	return harness.NewThread(ns, name, "agent", func(s *skeinv1.ThreadSpec) {
		s.ForkFrom = &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: origin}}
		if len(index) > 0 {
			s.ForkFrom.MessageIndex = &index[0]
		}
	})
}

// unforked waits until a Thread is not Ready for a reason.
func unforked(ctx context.Context, t *harness.Thread, reason, message string) *skeinv1.Thread {
	GinkgoHelper()
	var o *skeinv1.Thread
	Eventually(ctx, func(g Gomega) {
		var err error
		o, err = t.Object(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(o.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, reason), HaveField("Message", ContainSubstring(message)))))
	}).Should(Succeed())
	return o
}

var _ = Describe("A fork", Label("REL-02"), func() {
	It("declared as a Thread begins with the messages and the files of its origin, and goes its own way", Label("REL-01", "THR-14"), func(ctx SpecContext) {
		raw, origin := echoing(ctx, func(s *skeinv1.ThreadSpec) {
			s.Title, s.UserID, s.Arguments = "Plan", "ada", harness.Raw(map[string]int{"n": 1})
		})
		ns := raw.Namespace
		say(ctx, raw, 1, "one")
		say(ctx, raw, 2, "two")
		Expect(raw.WriteFile(ctx, "/a.txt", "text/plain", []byte("origin's"))).To(Succeed())
		Expect(raw.SetValue(ctx, "k", "1")).To(Succeed())
		mode, tags := "rush", []string{"x"}
		_, err := origin.Update(ctx, runtimev1.ThreadPatch{AgentMode: &mode, MaxTokens: ptr.To(int64(9)), Workspace: &runtimev1.WorkspacePatch{Tags: &tags}})
		Expect(err).NotTo(HaveOccurred())
		_, err = origin.ActivateSkill(ctx, "sql", nil)
		Expect(err).NotTo(HaveOccurred())

		create(ctx, forkOf(ns, "fork", "thread", 1))
		fork := ready(ctx, cluster.Thread(ns, "fork"))
		ms, err := fork.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(Equal([]string{"user: one", "assistant: echo: one"}))
		record, err := conversation(fork).Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		object, err := raw.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(*record).To(And(HaveField("Title", "Forked: Plan"), HaveField("UserID", HaveValue(Equal("ada"))), HaveField("Arguments", MatchJSON(`{"n":1}`)),
			HaveField("OriginThreadID", string(object.UID)), HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(1))), HaveField("MainThreadID", ""),
			HaveField("Workspace.Tags", tags), HaveField("AgentMode", ""), HaveField("MaxTokens", BeZero()), HaveField("ActivatedSkills", BeEmpty())))
		Expect(fork.Value(ctx, "k")).To(Equal("null"))
		Expect(fork.ReadFile(ctx, "/a.txt")).To(BeEquivalentTo("origin's"))

		By("showing it at both ends")
		o, err := fork.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(o.Status).To(And(HaveField("OriginThreadID", string(object.UID)), HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(1))), HaveField("RelationshipCount", int64(1)),
			HaveField("Relationships", ConsistOf(And(HaveField("ThreadName", "thread"), HaveField("Type", "fork"), HaveField("Role", "child"), HaveField("MessageIndex", HaveValue(BeEquivalentTo(1))))))))
		Eventually(ctx, func(g Gomega) {
			object, err = raw.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(object.Status.Relationships).To(ConsistOf(And(HaveField("ThreadID", record.ThreadID), HaveField("ThreadName", "fork"), HaveField("Role", "parent"))))
		}).Should(Succeed())
		Expect(origin.Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", ConsistOf(And(HaveField("ThreadID", record.ThreadID), HaveField("Role", "parent"), HaveField("CreatedAt", Not(BeZero()))))))

		By("keeping each side from the other")
		Expect(last(say(ctx, fork, 1, "aside"))).To(Equal("echo: aside"))
		Expect(fork.WriteFile(ctx, "/a.txt", "text/plain", []byte("fork's"))).To(Succeed())
		_, err = conversation(fork).UpdateMessage(ctx, ms[0].ID, runtimev1.MessageUpdates{Content: ptr.To("edited")})
		Expect(err).NotTo(HaveOccurred())
		originMessages, err := raw.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(originMessages)).To(Equal([]string{"user: one", "assistant: echo: one", "user: two", "assistant: echo: two"}))
		Expect(raw.ReadFile(ctx, "/a.txt")).To(BeEquivalentTo("origin's"))

		By("forking the fork, at the newest message and by an id")
		create(ctx, forkOf(ns, "newest", "fork"))
		Expect(conversation(ready(ctx, cluster.Thread(ns, "newest"))).Get(ctx)).To(And(HaveField("Title", "Forked(2): Plan"), HaveField("MessageCount", int64(4))))
		byID := forkOf(ns, "by-id", "fork")
		byID.Spec.ForkFrom.MessageID, byID.Spec.Title, byID.Spec.Message = ms[0].ID, "Mine", "go on"
		create(ctx, byID)
		Expect(texts(settled(ctx, ready(ctx, cluster.Thread(ns, "by-id")), 1))).To(Equal([]string{"user: edited", "user: go on", "assistant: echo: go on"}))
		Expect(conversation(cluster.Thread(ns, "by-id")).Get(ctx)).To(HaveField("Title", "Mine"))

		By("outliving its origin")
		Expect(raw.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := raw.Object(ctx); return err }).Should(Satisfy(apierrors.IsNotFound))
		ms, err = fork.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(Equal([]string{"user: edited", "assistant: echo: one", "user: aside", "assistant: echo: aside"}))
		Expect(conversation(fork).Get(ctx)).To(And(HaveField("OriginThreadID", string(object.UID)), HaveField("Relationships", HaveLen(2))), "its forks are left")
		Eventually(ctx, func(g Gomega) {
			o, err := fork.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Relationships).NotTo(ContainElement(HaveField("Role", "child")))
			g.Expect(o.Status.RelationshipCount).To(Equal(int64(2)))
			g.Expect(o.Status.OriginThreadID).To(Equal(string(object.UID)))
		}).Should(Succeed())
	}, SpecTimeout(4*time.Minute))

	It("is made by the API and by the plugin, once for a key, with an error past the end", func(ctx SpecContext) {
		raw, t := echoing(ctx)
		ns := raw.Namespace
		say(ctx, raw, 1, "one")
		names := make(chan string, 20)
		for range cap(names) {
			go func() {
				defer GinkgoRecover()
				fork, err := conversation(raw).Fork(ctx, runtimev1.NewFork{IdempotencyKey: "k", MessageIndex: ptr.To(int64(0))})
				Expect(err).NotTo(HaveOccurred())
				names <- fork.Name
			}()
		}
		var first string
		Eventually(ctx, names).Should(Receive(&first))
		for range cap(names) - 1 {
			Eventually(ctx, names).Should(Receive(Equal(first)))
		}
		Expect(texts(say(ctx, cluster.Thread(ns, first), 1, "two"))).To(Equal([]string{"user: one", "user: two", "assistant: echo: two"}))
		Expect(t.Relationships(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(1)))

		_, err := t.Fork(ctx, runtimev1.NewFork{MessageIndex: ptr.To(int64(2))})
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("the thread thread has 2 messages: give an index from 0 to 1, not 2"))))
		_, err = t.Fork(ctx, runtimev1.NewFork{MessageID: "none"})
		Expect(err).To(Satisfy(apierrors.IsInvalid))
		_, err = t.Fork(ctx, runtimev1.NewFork{Name: "Not a name"})
		Expect(err).To(Satisfy(apierrors.IsInvalid))
		_, err = t.Fork(ctx, runtimev1.NewFork{Name: "thread"})
		Expect(err).To(Satisfy(apierrors.IsAlreadyExists))

		out, err := cluster.Plugin(ctx, "-n", ns, "fork", "thread", "--message", "1", "--name", "aside", "--title", "Aside")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("thread/aside forked from thread at message 1\n"))
		Expect(conversation(cluster.Thread(ns, "aside")).Get(ctx)).To(And(HaveField("Title", "Aside"), HaveField("MessageCount", int64(2))))
		out, err = cluster.Plugin(ctx, "-n", ns, "messages", "aside", "--index")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`(?m)^1 .*assistant.*echo: one`))
		out, err = cluster.Plugin(ctx, "-n", ns, "fork", "thread", "--message", "7")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("give an index from 0 to 1, not 7"))

		By("forking a thread that has ended, that was archived, and that is a fork a hundred deep")
		_, err = t.Archive(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(raw.Terminate(ctx)).To(Succeed())
		create(ctx, forkOf(ns, "declared", "thread"), forkOf(ns, "past", "thread", 9))
		Expect(texts(say(ctx, ready(ctx, cluster.Thread(ns, "declared")), 1, "on"))).To(Equal([]string{"user: one", "assistant: echo: one", "user: on", "assistant: echo: on"}))
		Expect(conversation(cluster.Thread(ns, "declared")).Get(ctx)).To(And(HaveField("Archived", false), HaveField("Terminated", BeNil())))
		unforked(ctx, cluster.Thread(ns, "past"), skeinv1.ReasonInvalidSpec, `Thread "thread", which spec.forkFrom names, was terminated and has messages with the indexes 0 to 1`)
		deep, err := t.Fork(ctx, runtimev1.NewFork{Name: "d1"})
		Expect(err).NotTo(HaveOccurred())
		for i := 2; i <= 100; i++ {
			deep, err = conversation(cluster.Thread(ns, deep.Name)).Fork(ctx, runtimev1.NewFork{Name: fmt.Sprint("d", i)})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(*deep).To(And(HaveField("Title", "Forked(100): Untitled"), HaveField("MessageCount", int64(2)), HaveField("Relationships", HaveLen(1)), HaveField("Archived", false)))
		Expect(texts(say(ctx, cluster.Thread(ns, "d100"), 1, "end"))).To(Equal([]string{"user: one", "assistant: echo: one", "user: end", "assistant: echo: end"}))
	}, SpecTimeout(4*time.Minute))

	It("leaves with its origin what waits there, and the run that works there", Label("MSG-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		model := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			harness.Say(w, req.Model, "to "+last)
		})
		raw := converseWith(ctx, ns, model.model(ns, "model"), nil)
		model.open()
		say(ctx, raw, 1, "one")
		model.shut()
		Expect(raw.Say(ctx, "two")).To(Succeed())
		Eventually(model.asked.Load).Should(BeEquivalentTo(1))
		Expect(raw.Say(ctx, "three")).To(Succeed()) // it waits while "two" is worked on
		create(ctx, forkOf(ns, "declared", "thread", 1))
		Expect(conversation(raw).Fork(ctx, runtimev1.NewFork{Name: "asked"})).To(And(HaveField("QueuedCount", BeZero()), HaveField("MessageCount", int64(3))))
		for name, said := range map[string][]string{"declared": {"user: one", "assistant: to user one"}, "asked": {"user: one", "assistant: to user one", "user: two"}} {
			fork := ready(ctx, cluster.Thread(ns, name))
			Expect(fork.Messages(ctx)).To(WithTransform(texts, Equal(said)), name)
			Expect(conversation(fork).Get(ctx)).To(HaveField("QueuedCount", BeZero()), name)
			Expect(fork.Runs(ctx)).To(BeEmpty(), "a fork does nothing until it is told")
		}
		Expect(conversation(raw).Get(ctx)).To(HaveField("QueuedCount", int64(1)))
		model.open()
		Expect(last(settled(ctx, raw, 3))).To(Equal("to user three"))
	}, SpecTimeout(2*time.Minute))

	It("waits for its origin and its message, and says for what", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		create(ctx, forkOf(ns, "second", "first", 3), forkOf(ns, "first", "origin", 1))
		unforked(ctx, cluster.Thread(ns, "first"), skeinv1.ReasonReferenceNotFound, `Thread "origin", which spec.forkFrom names, does not exist`)
		unforked(ctx, cluster.Thread(ns, "second"), skeinv1.ReasonReferenceNotReady, `Thread "first", which spec.forkFrom names, cannot be forked yet`)
		Expect(cluster.Thread(ns, "first").Say(ctx, "x")).To(MatchError(ContainSubstring("is not set up yet (ReferenceNotFound")))
		create(ctx, harness.NewThread(ns, "origin", "agent"))
		unforked(ctx, cluster.Thread(ns, "first"), skeinv1.ReasonReferenceNotFound, "has no messages")
		say(ctx, ready(ctx, cluster.Thread(ns, "origin")), 1, "one")
		first := ready(ctx, cluster.Thread(ns, "first"))
		unforked(ctx, cluster.Thread(ns, "second"), skeinv1.ReasonReferenceNotFound, "has messages with the indexes 0 to 1 and none with the index 3")
		say(ctx, first, 1, "two")
		Expect(texts(say(ctx, ready(ctx, cluster.Thread(ns, "second")), 1, "three"))).To(Equal([]string{
			"user: one", "assistant: echo: one", "user: two", "assistant: echo: two", "user: three", "assistant: echo: three"}))

		By("being stalled where waiting cannot help")
		create(ctx, forkOf(ns, "never", "origin", 9), forkOf(ns, "x", "y"), forkOf(ns, "y", "x"))
		unforked(ctx, cluster.Thread(ns, "never"), skeinv1.ReasonReferenceNotFound, "none with the index 9")
		Expect(cluster.Thread(ns, "origin").Terminate(ctx)).To(Succeed())
		o := unforked(ctx, cluster.Thread(ns, "never"), skeinv1.ReasonInvalidSpec, "was terminated")
		Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionStalled, metav1.ConditionTrue)))
		unforked(ctx, cluster.Thread(ns, "y"), skeinv1.ReasonInvalidSpec, "in a circle (y from x from y)")
		unforked(ctx, cluster.Thread(ns, "x"), skeinv1.ReasonInvalidSpec, "in a circle (x from y from x)")

		By("being refused where nothing could come of it")
		for want, edit := range map[string]func(*skeinv1.Thread){
			"a thread cannot be forked from itself":      func(t *skeinv1.Thread) { t.Spec.ForkFrom.ThreadRef.Name = t.Name },
			"set messageIndex or messageID, not both":    func(t *skeinv1.Thread) { t.Spec.ForkFrom.MessageID = "m1" },
			"set forkFrom for a new thread, or threadID": func(t *skeinv1.Thread) { t.Spec.ThreadID = "6f1c0a3e-8a44-4c0e-9d0b-2f6f2b9f4f10" },
			"should be greater than or equal to 0":       func(t *skeinv1.Thread) { t.Spec.ForkFrom.MessageIndex = ptr.To(int64(-1)) },
		} {
			bad := forkOf(ns, "bad", "origin", 1)
			edit(bad)
			Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring(want)))
		}
		o, err := first.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		changed := o.DeepCopy()
		changed.Spec.ForkFrom.MessageIndex = ptr.To(int64(0))
		Expect(cluster.Client.Patch(ctx, changed, client.MergeFrom(o))).To(MatchError(ContainSubstring("forkFrom is fixed when the thread is created")))
	}, SpecTimeout(3*time.Minute))

	It("needs the right to read the origin, at every door", Label("K8S-04"), func(ctx SpecContext) {
		raw, _ := echoing(ctx)
		ns := raw.Namespace
		say(ctx, raw, 1, "secret")
		user := "forker-of-" + ns
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forker"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{skeinv1.GroupVersion.Group}, Resources: []string{"threads"}, Verbs: []string{"*"}},
			{APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"threads/fork"}, Verbs: []string{"create"}},
		}}
		create(ctx, role, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forker"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "forker"},
		})
		declare := func(name string) error {
			t := forkOf(ns, name, "thread", 0)
			t.TypeMeta = metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: "Thread"}
			_, err := cluster.KubectlIn(ctx, string(harness.Raw(t).Raw), "--as="+user, "-n", ns, "create", "-f", "-")
			return err
		}
		ask := func() error {
			_, err := runtimeAs(user).Thread(ns, "thread").Fork(ctx, runtimev1.NewFork{})
			return err
		}
		may := func(resources ...string) {
			GinkgoHelper()
			before := role.DeepCopy()
			role.Rules = append(role.Rules[:2:2], rbacv1.PolicyRule{APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: resources, Verbs: []string{"get"}, ResourceNames: []string{"thread"}})
			Expect(cluster.Client.Patch(ctx, role, client.MergeFrom(before))).To(Succeed())
		}
		Eventually(ctx, func() error { return declare("denied") }).Should(MatchError(ContainSubstring(`cannot get resource "threads/messages" in API group "runtime.skein.dev"`)))
		Eventually(ctx, ask).Should(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`cannot get resource "threads/messages"`))))
		may("threads/messages")
		Eventually(ctx, func() error { return declare("denied") }).Should(MatchError(ContainSubstring(`cannot get resource "threads/files"`)))
		Eventually(ctx, ask).Should(MatchError(ContainSubstring(`cannot get resource "threads/files"`)))
		may("threads/messages", "threads/files")
		Eventually(ctx, func() error { return declare("allowed") }).Should(Succeed())
		Eventually(ctx, ask).Should(Succeed())

		By("leaving no other way: a schedule makes no forks")
		template := forkOf(ns, "x", "thread").Spec
		template.Message = "x"
		Expect(cluster.Client.Create(ctx, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forks"}, Spec: skeinv1.ScheduledEffectSpec{
			After: &metav1.Duration{Duration: time.Hour}, ThreadTemplate: &skeinv1.ThreadTemplate{Spec: template},
		}})).To(MatchError(ContainSubstring("leave out forkFrom")))
	}, SpecTimeout(3*time.Minute))

	It("loses its relationship with the messages past a cut, on both ends", Label("MSG-11", "REL-01"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		ns := raw.Namespace
		say(ctx, raw, 1, "one")
		say(ctx, raw, 2, "two")
		create(ctx, forkOf(ns, "early", "thread", 1), forkOf(ns, "late", "thread", 3))
		early, late := ready(ctx, cluster.Thread(ns, "early")), ready(ctx, cluster.Thread(ns, "late"))
		_, err := t.Truncate(ctx, runtimev1.Truncate{MessageIndex: ptr.To(int64(1))})
		Expect(err).NotTo(HaveOccurred())
		peers := func(t *harness.Thread) func(g Gomega) []string {
			return func(g Gomega) (names []string) {
				o, err := t.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				for _, r := range o.Status.Relationships {
					names = append(names, r.ThreadName+" "+r.Role)
				}
				list, err := conversation(t).Relationships(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(list.Total).To(BeEquivalentTo(len(names)), "the status follows the store")
				return names
			}
		}
		Eventually(ctx, peers(raw)).Should(Equal([]string{"early parent"}))
		Eventually(ctx, peers(early)).Should(Equal([]string{"thread child"}))
		Eventually(ctx, peers(late)).Should(BeEmpty())
		ms, err := late.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(ms).To(HaveLen(4), "its messages stay")
		Expect(t.Destroy(ctx)).Error().NotTo(HaveOccurred())
		Eventually(ctx, peers(raw)).Should(BeEmpty())
		Eventually(ctx, peers(early)).Should(BeEmpty())
		Expect(last(say(ctx, early, 1, "on"))).To(Equal("echo: on"))
	}, SpecTimeout(3*time.Minute))

	It("shows in the history with its origin and its parent relationships, and the diff of its own files", Label("THR-15"), func(ctx SpecContext) {
		raw, _ := echoing(ctx)
		ns := raw.Namespace
		say(ctx, raw, 1, "one")
		for _, path := range []string{"/a.txt", "/b.txt"} {
			Expect(raw.WriteFile(ctx, path, "text/plain", []byte("1"))).To(Succeed())
		}
		create(ctx, forkOf(ns, "fork", "thread"))
		fork := ready(ctx, cluster.Thread(ns, "fork"))
		item := func() runtimev1.ThreadHistory {
			GinkgoHelper()
			list, err := runtimeAs("").History(ctx, ns, runtimeclient.HistoryOptions{})
			Expect(err).NotTo(HaveOccurred())
			for _, i := range list.Items {
				if i.Name == "fork" {
					return i
				}
			}
			Fail("the fork is not listed")
			panic("not reached")
		}
		object, err := raw.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(item()).To(And(HaveField("OriginThreadID", string(object.UID)), HaveField("Title", HaveValue(Equal("Forked: Untitled"))), HaveField("MainThreadID", ""),
			HaveField("SummaryStats", runtimev1.SummaryStats{MessageCount: 2}),
			HaveField("ParentRelationships", ConsistOf(And(HaveField("ThreadID", string(object.UID)), HaveField("Type", "fork"), HaveField("Role", "child"), HaveField("MessageIndex", HaveValue(BeEquivalentTo(1))))))))
		Expect(cluster.Plugin(ctx, "-n", ns, "history", "-o", "wide")).To(MatchRegexp(`(?m)^NAME .* RELATIONSHIPS$[^$]*^fork .* fork of thread at 1$`))
		Expect(fork.WriteFile(ctx, "/a.txt", "text/plain", []byte("2"))).To(Succeed())
		Expect(fork.WriteFile(ctx, "/c.txt", "text/plain", []byte("3"))).To(Succeed())
		Expect(conversation(fork).DeleteFile(ctx, "/b.txt")).To(Succeed())
		say(ctx, fork, 1, "two")
		Expect(item().SummaryStats).To(Equal(runtimev1.SummaryStats{MessageCount: 4, DiffStats: runtimev1.DiffStats{Added: 1, Changed: 1, Removed: 1}}))
	}, SpecTimeout(2*time.Minute))
})
