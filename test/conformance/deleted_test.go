package conformance

import (
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Deleted threads", func() {
	It("take their descendants and all data with them, the child first", Label("THR-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hang"}))},
			[]skeinv1.ScriptStep{hang()}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }))
		Expect(t.WriteFile(ctx, "/f", "text/plain", []byte("x"))).To(Succeed())
		Expect(t.Say(ctx, "go")).To(Succeed())
		var child *harness.Thread
		Eventually(ctx, func(g Gomega) {
			subs := subagents(ctx, ns)
			g.Expect(subs).To(HaveLen(1))
			child = cluster.Thread(ns, subs[0].Name)
			g.Expect(child.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		}).Should(Succeed())
		parentID, childID := must(t.Object(ctx)).ThreadID(), must(child.Object(ctx)).ThreadID()
		_, err := cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "thread", "--cascade=foreground", "--timeout=90s")
		Expect(err).NotTo(HaveOccurred())
		var l skeinv1.ThreadList
		Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
		Expect(l.Items).To(BeEmpty(), "in the foreground the parent goes last")
		Expect(subagents(ctx, ns)).To(BeEmpty())
		for _, id := range []string{parentID, childID} {
			_, err := api().Lookup(ctx, id)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
		Expect(api().Retained(ctx, ns, "", 0)).To(HaveField("Threads", BeEmpty()))
	}, SpecTimeout(2*time.Minute))

	// generations makes a thread whose subagent has a subagent, all at work, and returns their ids, the outermost first.
	generations := func(ctx SpecContext, ns string) (*harness.Thread, []string) {
		GinkgoHelper()
		blocking := helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true })
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "deeper"}))},
			[]skeinv1.ScriptStep{harness.On("deeper", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hang"})), hang()}, blocking)
		Expect(t.Say(ctx, "go")).To(Succeed())
		ids := []string{must(t.Object(ctx)).ThreadID()}
		Eventually(ctx, func(g Gomega) {
			ids = ids[:1]
			for name := t.Name; ; {
				next := ""
				for _, s := range subagents(ctx, ns) {
					if s.Spec.ParentRef.Name == name {
						next = s.Name
					}
				}
				if next == "" {
					break
				}
				o, err := cluster.Thread(ns, next).Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				ids, name = append(ids, o.ThreadID()), next
			}
			g.Expect(ids).To(HaveLen(3))
			rec, err := api().Lookup(ctx, ids[2])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cluster.Thread(ns, rec.Name).Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		}).Should(Succeed())
		return t, ids
	}
	// purged lists the threads of a namespace whose data is gone, in the order in which it went.
	purged := func(ctx SpecContext, ns string) (ids []string) {
		GinkgoHelper()
		for e, err := range api().Lifecycle(ctx, ns, runtimeclient.LifecycleOptions{NoFollow: true}) {
			Expect(err).NotTo(HaveOccurred())
			if e.Type == runtimev1.LifecycleThreadDestroyed && e.Reason == "deleted" {
				ids = append(ids, e.ThreadID)
			}
		}
		return ids
	}

	DescribeTable("are purged after their descendants", Label("THR-09", "SUB-08"), func(ctx SpecContext, cascade string) {
		ns := namespace(ctx)
		_, ids := generations(ctx, ns)
		_, err := cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "thread", "--cascade="+cascade, "--timeout=90s")
		Expect(err).NotTo(HaveOccurred())
		slices.Reverse(ids)
		Expect(purged(ctx, ns)).To(Equal(ids), "all of it is gone when the object is, the innermost first")
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			g.Expect(l.Items).To(BeEmpty())
			g.Expect(subagents(ctx, ns)).To(BeEmpty())
		}).Should(Succeed())
	},
		Entry("in the background", "background", SpecTimeout(3*time.Minute)),
		Entry("in the foreground", "foreground", SpecTimeout(3*time.Minute)),
	)

	It("are purged although a foreign finalizer holds a child and the manager restarts", Label("THR-09", "RUN-02"), Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		t, ids := generations(ctx, ns)
		inner := must(api().Lookup(ctx, ids[2]))
		const held = "example.com/held"
		var o skeinv1.Thread
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: inner.Name}, &o)).To(Succeed())
		before := o.DeepCopy()
		o.Finalizers = append(o.Finalizers, held)
		Expect(cluster.Client.Patch(ctx, &o, client.MergeFrom(before))).To(Succeed())

		manager.Kill()
		_, err := cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "thread", "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		Expect(must(t.Object(ctx)).DeletionTimestamp).NotTo(BeNil(), "nobody purges it")
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() bool { _, err := t.Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
		slices.Reverse(ids)
		Eventually(ctx, func() error { _, err := api().Lookup(ctx, ids[0]); return err }).Should(Satisfy(apierrors.IsNotFound))
		Expect(purged(ctx, ns)).To(Equal(ids))
		Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(&o), &o)).To(Succeed())
		Expect(o.Finalizers).To(ContainElement(held))
		before = o.DeepCopy()
		o.Finalizers = nil
		Expect(cluster.Client.Patch(ctx, &o, client.MergeFrom(before))).To(Succeed())
	}, SpecTimeout(4*time.Minute))

	It("leave their subagents to themselves with --cascade=orphan, and nothing that they scheduled", Label("THR-09", "EFF-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hello"})), harness.After("subagent_create", harness.Answer("ok"))},
			[]skeinv1.ScriptStep{harness.Echo()}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		say(ctx, t, 1, "go")
		child := cluster.Thread(ns, subagents(ctx, ns)[0].Name)
		id := must(t.Object(ctx)).ThreadID()
		create(ctx, harness.Effect(ns, "note", note))
		Expect(conversation(t).Schedule(ctx, runtimev1.NewEffect{Name: "note", Delay: time.Hour.Milliseconds()})).Error().NotTo(HaveOccurred())
		_, err := cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "thread", "--cascade=orphan", "--timeout=90s")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			var left skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &left, client.InNamespace(ns))).To(Succeed())
			g.Expect(left.Items).To(BeEmpty())
		}).Should(Succeed())
		_, err = api().Lookup(ctx, id)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "its own data is purged: %v", err)
		Expect(last(say(ctx, child, 2, "still there"))).To(Equal("echo: still there"))
		Consistently(ctx, func(g Gomega) { // the garbage collector has nothing to say about it
			o, err := child.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.DeletionTimestamp).To(BeNil())
			g.Expect(subagents(ctx, ns)).To(HaveExactElements(HaveField("OwnerReferences", BeEmpty())))
		}, "2s", "100ms").Should(Succeed())

		By("giving the name of the parent to another thread")
		create(ctx, harness.NewThread(ns, "thread", "parent"))
		namesake := cluster.Thread(ns, "thread")
		Expect(last(say(ctx, namesake, 1, "go"))).To(Equal("ok"), "it has a subagent of its own")
		own, err := api().Thread(ns, "thread").Children(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(own.Children).To(HaveExactElements(HaveField("Reference", Not(Equal(child.Name)))))
		Eventually(ctx, func(g Gomega) {
			o, err := namesake.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Children).To(HaveExactElements(HaveField("Reference", own.Children[0].Reference)))
			g.Expect(o.Status.ChildCount).To(BeEquivalentTo(1))
			g.Expect(subagents(ctx, ns)).To(ContainElement(And(HaveField("Name", child.Name), HaveField("OwnerReferences", BeEmpty()), HaveField("Status.Conditions",
				ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`an earlier Thread "thread"`))))))))
		}).Should(Succeed())
		_, err = cluster.Kubectl(ctx, "-n", ns, "delete", "thread", "thread", "--timeout=90s")
		Expect(err).NotTo(HaveOccurred())
		Expect(last(say(ctx, child, 3, "and now"))).To(Equal("echo: and now"), "the end of that one is none of its business")
		Expect(child.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() bool { _, err := child.Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("leave their data with deletionPolicy Retain, to a Thread that names its id", Label("THR-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{hang(), harness.Echo()}, func(s *skeinv1.ThreadSpec) {
			s.DeletionPolicy, s.UserID, s.Arguments = skeinv1.DeletionRetain, "ada", harness.Raw(map[string]any{"n": 3})
		})
		say(ctx, t, 1, "one")
		Expect(t.WriteFile(ctx, "/f", "text/plain", []byte("kept"))).To(Succeed())
		Expect(t.SetValue(ctx, "color", `"red"`)).To(Succeed())
		id := must(t.Object(ctx)).ThreadID()
		adopting := func(name, ns string) *skeinv1.Thread {
			return harness.NewThread(ns, name, "agent", func(s *skeinv1.ThreadSpec) { s.ThreadID = id })
		}
		notReady := func(name, reason string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				o, err := cluster.Thread(ns, name).Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, reason)))
			}).Should(Succeed())
		}
		By("adopting the data while its own Thread exists")
		create(ctx, adopting("second", ns))
		notReady("second", skeinv1.ReasonThreadInUse)
		_, err := cluster.Thread(ns, "second").Request(http.MethodGet, "messages").MaxRetries(0).DoRaw(ctx)
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "another's conversation does not show: %v", err)
		Expect(cluster.Thread(ns, "second").Delete(ctx)).To(Succeed())
		Eventually(ctx, func() bool { _, err := cluster.Thread(ns, "second").Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
		Expect(t.Messages(ctx)).To(HaveLen(2), "nor does its end touch it")

		By("deleting it while it runs and a message waits")
		Expect(t.Say(ctx, "hang")).To(Succeed())
		running(ctx, t)
		Expect(t.Say(ctx, "waits")).To(Succeed())
		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(ctx, func() bool { _, err := t.Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
		list, err := api().Retained(ctx, ns, "", 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Threads).To(HaveExactElements(And(HaveField("ThreadID", id), HaveField("Name", "thread"), HaveField("MessageCount", int64(3)), HaveField("QueuedCount", int64(1)))))
		out, err := cluster.Plugin(ctx, "-n", ns, "retained")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(id))
		kept := cluster.Thread(ns, id)
		Expect(kept.Messages(ctx)).To(HaveLen(4), "it can be read by its id")
		_, err = api().Thread(ns, id).Queue(ctx, runtimev1.NewMessage{Content: "no"})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("spec.threadID")))
		Expect(kept.SetValue(ctx, "color", `"blue"`)).NotTo(Succeed())

		By("adopting it elsewhere")
		other := namespace(ctx)
		create(ctx, harness.Scripted(other, "model", harness.Echo()), harness.Prompt(other, "prompt", "model"), harness.Agent(other, "agent", "prompt"), adopting("thief", other))
		Eventually(ctx, func(g Gomega) {
			o, err := cluster.Thread(other, "thief").Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonThreadNotRetained)))
		}).Should(Succeed())

		By("adopting it with other arguments, which is refused")
		for _, edit := range []func(*skeinv1.ThreadSpec){
			func(s *skeinv1.ThreadSpec) { s.Arguments = harness.Raw(map[string]any{"n": 4}) },
			func(s *skeinv1.ThreadSpec) { s.TaskID = "another" },
		} {
			wrong := adopting("wrong", ns)
			edit(&wrong.Spec)
			create(ctx, wrong)
			notReady("wrong", skeinv1.ReasonInvalidSpec)
			Expect(cluster.Thread(ns, "wrong").Delete(ctx)).To(Succeed())
			Eventually(ctx, func() bool { _, err := cluster.Thread(ns, "wrong").Object(ctx); return apierrors.IsNotFound(err) }).Should(BeTrue())
		}

		By("adopting it with the same ones")
		same := adopting("again", ns)
		same.Spec.Arguments = harness.Raw(map[string]any{"n": 3})
		create(ctx, same)
		again := ready(ctx, cluster.Thread(ns, "again"))
		Expect(last(settled(ctx, again, 3))).To(Equal("echo: waits"), "what waited is taken up")
		Expect(texts(must(again.Messages(ctx)))).To(Equal([]string{"user: one", "assistant: echo: one", "user: hang", "user: waits", "assistant: echo: waits"}))
		Expect(again.ReadFile(ctx, "/f")).To(BeEquivalentTo("kept"))
		Expect(again.Value(ctx, "color")).To(MatchJSON(`"red"`))
		rec, err := api().Thread(ns, "again").Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.ThreadID).To(Equal(id))
		Expect(rec.Name).To(Equal("again"))
		Expect(rec.UserID).To(HaveValue(Equal("ada")))
		Expect(rec.Arguments).To(MatchJSON(`{"n":3}`))
		Expect(must(again.Object(ctx)).Status.ThreadID).To(Equal(id))
		Expect(api().Retained(ctx, ns, "", 0)).To(HaveField("Threads", BeEmpty()))
		err = api().PurgeRetained(ctx, ns, id)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "it has an object: %v", err)
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "again", "--type=merge", "-p", `{"spec":{"threadID":null}}`)
		Expect(err).To(MatchError(ContainSubstring("threadID is fixed")))

		By("retaining it again, and purging it")
		_, err = cluster.Kubectl(ctx, "-n", ns, "patch", "thread", "again", "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(api().Retained(ctx, ns, "", 0)).To(HaveField("Threads", HaveLen(1))) }).Should(Succeed())
		out, err = cluster.Plugin(ctx, "-n", ns, "purge", id)
		Expect(err).NotTo(HaveOccurred(), out)
		_, err = api().Lookup(ctx, id)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		create(ctx, adopting("late", ns))
		notReady("late", skeinv1.ReasonThreadNotRetained)
	}, SpecTimeout(3*time.Minute))
})
