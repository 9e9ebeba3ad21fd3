package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// emptied waits until a namespace has no Threads, Subagents and ScheduledEffects, and nothing is stored of threads without them.
func emptied(ctx SpecContext, ns string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		for _, l := range []client.ObjectList{&skeinv1.ThreadList{}, &skeinv1.SubagentList{}, &skeinv1.ScheduledEffectList{}} {
			g.Expect(cluster.Client.List(ctx, l, client.InNamespace(ns))).To(Succeed())
			g.Expect(objectsOf(l)).To(BeEmpty())
		}
		retained, err := api().Retained(ctx, ns, "", 100)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(retained.Threads).To(BeEmpty())
	}).WithTimeout(2 * patience).Should(Succeed())
}

var _ = Describe("A parent that is deleted", Label("SUB-08", "THR-09"), func() {
	It("takes its child along, in whatever state that is", func(ctx SpecContext) {
		ns := namespace(ctx)
		approved := harness.Prompt(ns, "asks", "asks", "builtin:kv")
		approved.Spec.Tools[0].RequiresApproval = true
		agents := map[string][]skeinv1.ScriptStep{
			"works": {harness.Slow(time.Hour, harness.Answer("late"))},
			"rests": {always("done")},
			"fails": {{Error: "no", Status: 400}},
			"asks":  {harness.Calls("set_value", map[string]any{"key": "k", "value": 1})},
		}
		for name, steps := range agents {
			prompt := harness.Prompt(ns, name, name)
			if name == "asks" {
				prompt = approved
			}
			create(ctx, harness.Scripted(ns, name, steps...), prompt, harness.Agent(ns, name, name))
		}
		run := func(status string) func(Gomega, *runtimeclient.Thread) {
			return func(g Gomega, child *runtimeclient.Thread) {
				runs, err := child.Runs(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(runs.Runs).To(ContainElement(HaveField("Status", status)))
			}
		}
		states := map[string]struct {
			agent string
			meet  func(Gomega, *runtimeclient.Thread) // that the child is in the state
		}{
			"just-declared": {"works", func(Gomega, *runtimeclient.Thread) {}},
			"without-agent": {"nobody", func(g Gomega, child *runtimeclient.Thread) {
				var o skeinv1.Thread
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "without-agent"}, &o)).To(Succeed())
				g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse)))
			}},
			"running":  {"works", run("running")},
			"waiting":  {"asks", run("waiting")},
			"finished": {"rests", run("succeeded")},
			"failed":   {"fails", run("failed")},
			"stopped": {"works", func(g Gomega, child *runtimeclient.Thread) {
				run("running")(g, child)
				g.Expect(child.Stop(ctx, "enough")).Error().NotTo(HaveOccurred())
			}},
			"terminated": {"rests", func(g Gomega, child *runtimeclient.Thread) { g.Expect(child.Terminate(ctx)).To(Succeed()) }},
			"archived": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				g.Expect(child.Archive(ctx)).Error().NotTo(HaveOccurred())
			}},
			"held": {"rests", func(g Gomega, child *runtimeclient.Thread) {
				g.Expect(child.Acquire(ctx, 10*time.Minute)).Error().NotTo(HaveOccurred())
			}},
			"deleted": {"works", func(g Gomega, child *runtimeclient.Thread) {
				run("running")(g, child)
				g.Expect(cluster.Thread(ns, "deleted").Delete(ctx)).To(Succeed())
			}},
		}
		for name, state := range states {
			create(ctx, harness.NewThread(ns, "parent-"+name, "rests"), &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.SubagentSpec{
				ParentRef: skeinv1.LocalRef{Name: "parent-" + name}, AgentRef: skeinv1.LocalRef{Name: state.agent}, Name: "helper", Message: "work", Resumable: true}})
		}
		for name, state := range states {
			By("deleting the parent of a child that is " + name)
			Eventually(ctx, func(g Gomega) { state.meet(g, conversation(cluster.Thread(ns, name))) }).Should(Succeed())
			Expect(cluster.Thread(ns, "parent-"+name).Delete(ctx)).To(Succeed())
		}
		emptied(ctx, ns)
		list, err := api().History(ctx, ns, runtimeclient.HistoryOptions{Archived: "all"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))
})
