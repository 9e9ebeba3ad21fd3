package conformance

import (
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Threads of one name in two namespaces", Label("THR-01", "THR-12", "SUB-08"), func() {
	It("never touch each other", func(ctx SpecContext) {
		spaces := []string{namespace(ctx), namespace(ctx)}
		var all [2]*runtimeclient.Thread
		var ids [2]string
		var both sync.WaitGroup
		for i, ns := range spaces {
			both.Go(func() { // both at once: what they share under their names, they would get from each other
				defer GinkgoRecover()
				t := family(ctx, ns, []skeinv1.ScriptStep{
					harness.On("^go$", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "who?"})),
					harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}")), always("ok")},
					[]skeinv1.ScriptStep{always("child of " + ns)}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
				all[i], ids[i] = conversation(t), idOf(ctx, t)
				Expect(all[i].Queue(ctx, runtimev1.NewMessage{ID: "same-id", Content: "go", IdempotencyKey: "same-key"})).Error().NotTo(HaveOccurred())
				// Once a run has taken it, what the declared child says is not taken with it: the model answers to what is said last.
				Eventually(ctx, func() ([]string, error) {
					page, err := all[i].Messages(ctx, runtimeclient.MessageOptions{})
					return texts(page.Messages), err
				}).Should(ContainElement("user: go"))
				create(ctx, harness.Effect(ns, "note", note), &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "declared"}, Spec: skeinv1.SubagentSpec{
					ParentRef: skeinv1.LocalRef{Name: "thread"}, AgentRef: skeinv1.LocalRef{Name: "worker"}, Name: "helper", Message: "who?", Resumable: true}})
				Expect(all[i].SetValue(ctx, "k", ns)).To(Succeed())
				for name, content := range map[string]string{"/own": ns, "/same": strings.Repeat("same", 50_000)} {
					Expect(all[i].WriteFile(ctx, name, strings.NewReader(content), runtimeclient.WriteFileOptions{})).Error().NotTo(HaveOccurred())
				}
				Expect(all[i].Schedule(ctx, runtimev1.NewEffect{Name: "note", Delay: time.Hour.Milliseconds(), IdempotencyKey: "same-key"})).Error().NotTo(HaveOccurred())
			})
		}
		both.Wait()
		if CurrentSpecReport().Failed() {
			return
		}
		// whole expects a thread to have what was made in its own namespace, once, and nothing else.
		whole := func(i int) {
			GinkgoHelper()
			t, ns, other := all[i], spaces[i], spaces[1-i]
			Eventually(ctx, func(g Gomega) {
				ms, err := t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})
				g.Expect(err).NotTo(HaveOccurred())
				said := texts(ms.Messages)
				g.Expect(said).To(ContainElements("user: go", "tool: child of "+ns))
				g.Expect(said).To(ContainElement(And(HavePrefix("user: [subagent helper (declared) completed]"), HaveSuffix("child of "+ns))))
				g.Expect(strings.Join(said, "\n")).NotTo(ContainSubstring(other))
				children, err := t.Children(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(children.Children).To(HaveLen(2))
				g.Expect(children.Children).To(HaveEach(HaveField("Status", "completed")))
			}).Should(Succeed())
			Expect(t.Value(ctx, "k")).To(MatchJSON(fmt.Sprintf("%q", ns)))
			for name, content := range map[string]string{"/own": ns, "/same": strings.Repeat("same", 50_000)} {
				Expect(cluster.Thread(ns, "thread").ReadFile(ctx, name)).To(BeEquivalentTo(content))
			}
			effects, err := t.Effects(ctx, "", runtimeclient.Page{})
			Expect(err).NotTo(HaveOccurred())
			Expect(effects.Effects).To(HaveLen(1))
			Expect(must(t.Get(ctx))).To(And(HaveField("ThreadID", ids[i]), HaveField("Namespace", ns), HaveField("Relationships", BeEmpty())))
		}
		whole(0)
		whole(1)

		By("naming one by its id from the other's namespace")
		Expect(ids[0]).NotTo(Equal(ids[1]))
		_, err := api().Thread(spaces[1], ids[0]).Get(ctx)
		Expect(err).To(MatchError(runtimeclient.ErrNotFound))
		_, err = all[1].Relate(ctx, runtimev1.Relationship{ThreadID: ids[0], Type: "mention", Role: "parent"})
		Expect(err).To(HaveOccurred())

		By("leasing one, which does not lock the other")
		lease, err := all[0].Acquire(ctx, 10*time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(all[0].Acquire(ctx, time.Minute)).Error().To(Satisfy(apierrors.IsConflict))
		other, err := all[1].Acquire(ctx, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = all[1].Holding(lease).Inject(ctx, runtimev1.NewMessage{Content: "y", Silent: true})
		Expect(err).To(HaveOccurred(), "a lease of one is none of the other")
		Expect(all[0].Holding(lease).Release(ctx)).To(Succeed())
		Expect(all[1].Holding(other).Inject(ctx, runtimev1.NewMessage{Content: "x", Silent: true})).Error().NotTo(HaveOccurred())
		Expect(all[1].Holding(other).Release(ctx)).To(Succeed())

		By("changing the definitions of one")
		_, err = cluster.Kubectl(ctx, "-n", spaces[0], "patch", "model", "worker", "--type=merge", "-p", `{"spec":{"script":{"steps":[{"content":"changed","times":0}]}}}`)
		Expect(err).NotTo(HaveOccurred())
		children := must(all[1].Children(ctx, runtimeclient.Page{})).Children
		Expect(last(say(ctx, cluster.Thread(spaces[1], children[0].ThreadName), 2, "who?"))).To(Equal("child of " + spaces[1]))

		By("terminating one, and deleting it")
		Expect(all[0].Terminate(ctx)).To(Succeed())
		Expect(must(all[1].Get(ctx)).Terminated).To(BeNil())
		Expect(cluster.Thread(spaces[0], "thread").Delete(ctx)).To(Succeed())
		emptied(ctx, spaces[0])
		Expect(api().Lookup(ctx, ids[0])).Error().To(Satisfy(apierrors.IsNotFound))
		whole(1)

		By("making another thread of the name")
		create(ctx, harness.NewThread(spaces[0], "thread", "parent"))
		fresh := conversation(ready(ctx, cluster.Thread(spaces[0], "thread")))
		Expect(must(fresh.Get(ctx))).To(And(HaveField("ThreadID", Not(BeElementOf(ids[0], ids[1]))), HaveField("MessageCount", BeZero())))
		Expect(must(fresh.Value(ctx, "k"))).To(BeEmpty())
		Expect(must(fresh.FileStats(ctx))).To(HaveField("FileCount", BeZero()))
	}, SpecTimeout(4*time.Minute))
})

// emptied waits until a namespace has no Threads, Subagents and ScheduledEffects, and nothing is stored of threads without them.
func emptied(ctx SpecContext, ns string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var left []string
		for _, l := range []client.ObjectList{&skeinv1.ThreadList{}, &skeinv1.SubagentList{}, &skeinv1.ScheduledEffectList{}} {
			g.Expect(cluster.Client.List(ctx, l, client.InNamespace(ns))).To(Succeed())
			for _, o := range objectsOf(l) {
				left = append(left, fmt.Sprintf("%T %s %s, deleted %v, finalizers %v, owners %+v", o, o.GetName(), o.GetUID(), o.GetDeletionTimestamp(), o.GetFinalizers(), o.GetOwnerReferences()))
			}
		}
		g.Expect(left).To(BeEmpty())
		retained, err := api().Retained(ctx, ns, "", 100)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(retained.Threads).To(BeEmpty())
	}).WithTimeout(2 * patience).Should(Succeed())
}

var _ = Describe("A parent that is deleted", Label("SUB-08", "THR-09"), func() {
	It("deletes its child in every state of the child", func(ctx SpecContext) {
		ns := namespace(ctx)
		approved := harness.Prompt(ns, "asks", "asks", "builtin:kv")
		approved.Spec.Tools[0].RequiresApproval = true
		agents := map[string][]skeinv1.ScriptStep{
			"works":     {harness.Slow(time.Hour, harness.Answer("late"))},
			"rests":     {always("done")},
			"fails":     {{Error: "no", Status: 400}},
			"asks":      {harness.Calls("set_value", map[string]any{"key": "k", "value": 1})},
			"needs":     {always("done")},
			"delegates": {harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "work"})},
		}
		for name, steps := range agents {
			prompt := harness.Prompt(ns, name, name)
			switch name {
			case "asks":
				prompt = approved
			case "delegates":
				prompt = harness.Prompt(ns, name, name, "builtin:subagents")
			}
			create(ctx, harness.Scripted(ns, name, steps...), prompt, harness.Agent(ns, name, name, func(s *skeinv1.AgentSpec) {
				switch name {
				case "needs":
					s.Env = []skeinv1.EnvVar{{Name: "KEY", Scoped: true, Required: true}}
				case "delegates":
					s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.AgentRef.Name, s.Blocking = "works", true })}
				}
			}))
		}
		run := func(status string) func(Gomega, *runtimeclient.Thread) {
			return func(g Gomega, child *runtimeclient.Thread) {
				runs, err := child.Runs(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(runs.Runs).To(ContainElement(HaveField("Status", status)))
			}
		}
		subagent := func(g Gomega, name string) *skeinv1.Subagent {
			o := &skeinv1.Subagent{}
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, o)).To(Succeed())
			return o
		}
		expires := func(retain skeinv1.ChildRetention) func(*skeinv1.SubagentSpec) {
			return func(s *skeinv1.SubagentSpec) {
				s.Resumable, s.TTLAfterFinished, s.Retain = false, &metav1.Duration{}, retain
			}
		}
		expired := func(name string) func(Gomega, *runtimeclient.Thread) {
			return func(g Gomega, _ *runtimeclient.Thread) {
				for _, o := range []client.Object{&skeinv1.Subagent{}, &skeinv1.Thread{}} {
					g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, o)).To(Satisfy(apierrors.IsNotFound))
				}
			}
		}
		adopts := func(name string) func(*skeinv1.SubagentSpec) {
			return func(s *skeinv1.SubagentSpec) {
				s.AgentRef.Name, s.Message, s.ThreadRef = "", "", &skeinv1.LocalRef{Name: name}
			}
		}
		states := map[string]struct {
			agent string
			meet  func(Gomega, *runtimeclient.Thread) // that the child is in the state
			edit  func(*skeinv1.SubagentSpec)         // may be nil
		}{
			"expired":      {"rests", expired("expired"), expires(skeinv1.ChildPurge)},
			"expired-kept": {"rests", expired("expired-kept"), expires(skeinv1.ChildKeep)},
			"not-expired": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				run("succeeded")(g, child)
				g.Expect(subagent(g, "not-expired").Status.Entry).To(HaveValue(HaveField("Status", "completed")))
			}, func(s *skeinv1.SubagentSpec) {
				s.Resumable, s.TTLAfterFinished = false, &metav1.Duration{Duration: time.Hour}
			}},
			"retained": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				run("succeeded")(g, child)
				o := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "retained"}}
				retain := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, skeinv1.AnnotationRetain))
				g.Expect(cluster.Client.Patch(ctx, o, retain)).To(Succeed())
			}, nil},
			"refused": {"rests", func(g Gomega, _ *runtimeclient.Thread) {
				g.Expect(subagent(g, "refused").Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonChildRefused)))
			}, func(s *skeinv1.SubagentSpec) { s.ToolCallID = "call_1" }}, // a Thread of the name exists: see below
			"adopted": {"", func(g Gomega, child *runtimeclient.Thread) {
				g.Expect(child.Get(ctx)).To(HaveField("ParentID", Not(BeEmpty())))
				g.Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "work", IdempotencyKey: "work"})).Error().NotTo(HaveOccurred())
				run("running")(g, child)
			}, adopts("adopted")},
			"adopts-missing": {"", func(g Gomega, _ *runtimeclient.Thread) {
				g.Expect(subagent(g, "adopts-missing").Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound)))
			}, adopts("adopts-missing")},
			"just-declared": {"works", func(g Gomega, _ *runtimeclient.Thread) { // a Subagent whose parent goes before it owns it stays
				g.Expect(subagent(g, "just-declared").OwnerReferences).NotTo(BeEmpty())
			}, nil},
			"without-agent": {"nobody", func(g Gomega, child *runtimeclient.Thread) {
				var o skeinv1.Thread
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "without-agent"}, &o)).To(Succeed())
				g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse)))
			}, nil},
			"running":  {"works", run("running"), nil},
			"waiting":  {"asks", run("waiting"), nil},
			"finished": {"rests", run("succeeded"), nil},
			"failed":   {"fails", run("failed"), nil},
			"stopped": {"works", func(g Gomega, child *runtimeclient.Thread) {
				run("running")(g, child)
				g.Expect(child.Stop(ctx, "enough")).Error().NotTo(HaveOccurred())
			}, nil},
			"terminated": {"rests", func(g Gomega, child *runtimeclient.Thread) { g.Expect(child.Terminate(ctx)).To(Succeed()) }, nil},
			"archived": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				g.Expect(child.Archive(ctx)).Error().NotTo(HaveOccurred())
			}, nil},
			"held": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				g.Expect(child.Acquire(ctx, 10*time.Minute)).Error().NotTo(HaveOccurred())
			}, nil},
			"destroyed": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				run("succeeded")(g, child)
				g.Expect(child.Destroy(ctx)).Error().NotTo(HaveOccurred())
			}, nil},
			"forked": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				run("succeeded")(g, child)
				fork, err := child.Fork(ctx, runtimev1.NewFork{IdempotencyKey: "fork"})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(cluster.Thread(ns, fork.Name).Delete(ctx)).To(Succeed())
			}, nil},
			"without-variable": {"needs", run("waiting"), nil},
			"parent-too":       {"delegates", run("waiting"), nil},
			"queued": {"works", func(g Gomega, child *runtimeclient.Thread) {
				run("running")(g, child)
				g.Expect(child.Queue(ctx, runtimev1.NewMessage{Content: "more", IdempotencyKey: "more"})).Error().NotTo(HaveOccurred())
			}, nil},
			"deleted": {"works", func(g Gomega, child *runtimeclient.Thread) {
				run("running")(g, child)
				g.Expect(cluster.Thread(ns, "deleted").Delete(ctx)).To(Succeed())
			}, nil},
		}
		create(ctx, harness.NewThread(ns, "refused", "rests"), harness.NewThread(ns, "adopted", "works"))
		foreign := ready(ctx, cluster.Thread(ns, "refused"))
		say(ctx, foreign, 1, "mine")
		for name, state := range states {
			spec := skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "parent-" + name}, AgentRef: skeinv1.LocalRef{Name: state.agent}, Name: "helper", Message: "work", Resumable: true}
			if state.edit != nil {
				state.edit(&spec)
			}
			create(ctx, harness.NewThread(ns, "parent-"+name, "rests"), &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec})
		}
		for name, state := range states {
			By("deleting the parent of a child that is " + name)
			Eventually(ctx, func(g Gomega) { state.meet(g, conversation(cluster.Thread(ns, name))) }).Should(Succeed())
			Expect(cluster.Thread(ns, "parent-"+name).Delete(ctx)).To(Succeed())
		}

		By("checking that a foreign Thread with the name of a child and retained conversations are kept")
		Eventually(ctx, func(g Gomega) {
			var left skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &left, client.InNamespace(ns))).To(Succeed())
			g.Expect(left.Items).To(ConsistOf(And(HaveField("Name", "refused"), HaveField("DeletionTimestamp", BeNil()))))
		}).WithTimeout(2 * patience).Should(Succeed())
		Expect(say(ctx, foreign, 2, "still mine")).NotTo(BeEmpty())
		Expect(foreign.Delete(ctx)).To(Succeed())
		kept, err := api().Retained(ctx, ns, "", 100)
		Expect(err).NotTo(HaveOccurred())
		Expect(kept.Threads).To(ConsistOf(HaveField("Name", "expired-kept"), HaveField("Name", "retained")))
		for _, t := range kept.Threads {
			Expect(api().PurgeRetained(ctx, ns, t.ThreadID)).To(Succeed())
		}
		emptied(ctx, ns)
		list, err := api().History(ctx, ns, runtimeclient.HistoryOptions{Archived: "all"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))
})

var _ = Describe("A fork of an unusual thread", Label("REL-02"), func() {
	It("copies imported messages", Label("LOG-02"), func(ctx SpecContext) {
		raw, origin := echoing(ctx)
		Expect(origin.Import(ctx, strings.NewReader(`{"agentId":"agent","createdAt":"2026-01-01T00:00:00Z"}
{"type":"message","role":"user","text":"before","timestamp":"2026-01-01T00:00:00Z"}
{"type":"message","role":"assistant","text":"long ago","timestamp":"2026-01-01T00:00:01Z"}
`))).Error().NotTo(HaveOccurred())
		create(ctx, forkOf(raw.Namespace, "declared", "thread", 0))
		Expect(texts(say(ctx, ready(ctx, cluster.Thread(raw.Namespace, "declared")), 1, "on"))).To(Equal([]string{"user: before", "user: on", "assistant: echo: on"}))
		Expect(origin.Fork(ctx, runtimev1.NewFork{Name: "asked"})).To(HaveField("MessageCount", int64(2)))
		Expect(texts(say(ctx, cluster.Thread(raw.Namespace, "asked"), 1, "on"))).To(Equal([]string{"user: before", "assistant: long ago", "user: on", "assistant: echo: on"}))
	}, SpecTimeout(2*time.Minute))

	It("is complete or refused while its origin is deleted", Label("THR-09"), func(ctx SpecContext) {
		raw, origin := echoing(ctx)
		ns, id := raw.Namespace, idOf(ctx, raw)
		say(ctx, raw, 1, "one")
		var all sync.WaitGroup
		forks := make([]*runtimev1.ThreadRecord, 20)
		errs := make([]error, len(forks))
		for i := range forks {
			all.Go(func() {
				forks[i], errs[i] = origin.Fork(ctx, runtimev1.NewFork{Name: fmt.Sprint("fork-", i)})
			})
		}
		all.Go(func() {
			defer GinkgoRecover()
			Expect(raw.Delete(ctx)).To(Succeed())
		})
		all.Wait()
		Eventually(ctx, func() error { _, err := raw.Object(ctx); return err }).Should(Satisfy(apierrors.IsNotFound))
		made := []string{}
		for i, fork := range forks {
			if errs[i] != nil {
				AddReportEntry("refused", errs[i].Error())
				continue
			}
			made = append(made, fork.Name)
			Expect(texts(say(ctx, cluster.Thread(ns, fork.Name), 1, "on"))).To(Equal([]string{"user: one", "assistant: echo: one", "user: on", "assistant: echo: on"}))
			Eventually(ctx, func(g Gomega) {
				record, err := conversation(cluster.Thread(ns, fork.Name)).Get(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(record.Relationships).To(BeEmpty(), "the other end is gone")
			}).Should(Succeed())
		}

		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			names := []string{}
			for _, o := range l.Items {
				names = append(names, o.Name)
			}
			g.Expect(names).To(ConsistOf(made), "a fork that was refused leaves no Thread")
		}).Should(Succeed())

		By("forking the origin after its deletion")
		// The manager may see the deletion of the object later than this client.
		for _, of := range []*runtimeclient.Thread{origin, api().Thread(ns, id)} {
			Eventually(ctx, func() error { _, err := of.Fork(ctx, runtimev1.NewFork{}); return err }).Should(Satisfy(apierrors.IsNotFound))
		}
		create(ctx, forkOf(ns, "late", "thread"))
		unforked(ctx, cluster.Thread(ns, "late"), skeinv1.ReasonReferenceNotFound, `Thread "thread", which spec.forkFrom names, does not exist`)
	}, SpecTimeout(3*time.Minute))
})
