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

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

func key(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// family declares a parent whose agent may start the given subagents, each played by the steps of "worker".
func family(ctx SpecContext, ns string, parent, worker []skeinv1.ScriptStep, subs ...skeinv1.AgentSubagent) *harness.Thread {
	GinkgoHelper()
	return familyWith(ctx, ns, parent, harness.Scripted(ns, "worker", worker...), subs...)
}

// familyWith is family with a model of the name worker.
func familyWith(ctx SpecContext, ns string, parent []skeinv1.ScriptStep, worker *skeinv1.Model, subs ...skeinv1.AgentSubagent) *harness.Thread {
	GinkgoHelper()
	create(ctx,
		harness.Scripted(ns, "parent", parent...),
		harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
		harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) { s.Subagents = subs }),
		worker,
		harness.Prompt(ns, "worker", "worker", "builtin:subagents"),
		harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) { s.Subagents = subs }),
		harness.NewThread(ns, "thread", "parent"),
	)
	return ready(ctx, cluster.Thread(ns, "thread"))
}

func helper(edit ...func(*skeinv1.AgentSubagent)) skeinv1.AgentSubagent {
	s := skeinv1.AgentSubagent{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "worker"}, Description: "does part of the work"}
	for _, f := range edit {
		f(&s)
	}
	return s
}

func subagents(ctx SpecContext, ns string) []skeinv1.Subagent {
	GinkgoHelper()
	var l skeinv1.SubagentList
	Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
	return l.Items
}

// onlyChild gives the thread of the one child in a namespace, once its Subagent tells of it: its status may come after the
// parent's run.
func onlyChild(ctx SpecContext, ns string) *harness.Thread {
	GinkgoHelper()
	var name string
	Eventually(ctx, func(g Gomega) {
		subs := subagents(ctx, ns)
		g.Expect(subs).To(HaveLen(1))
		g.Expect(subs[0].Status.Entry).NotTo(BeNil())
		name = subs[0].Status.Entry.ThreadName
	}).Should(Succeed())
	return cluster.Thread(ns, name)
}

// takenIn waits until a parent has taken in a message that a child sent it, and is at rest, and returns its messages. The number
// of runs varies: the run that made the child takes in what comes before its end.
func takenIn(ctx SpecContext, t *harness.Thread, message OmegaMatcher) []runtimev1.Message {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		ms, err := t.Messages(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		ms = slices.DeleteFunc(ms, func(m runtimev1.Message) bool { return m.Status == runtimev1.MessagePending })
		g.Expect(texts(ms)).To(ContainElement(message))
		// Read after the message has been seen to be taken in: the run that did is among them.
		runs, err := t.Runs(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		for _, r := range runs {
			g.Expect(r.Ended()).To(BeTrue(), "run %s is %s", r.ID, r.Status)
		}
	}).Should(Succeed())
	return must(t.Messages(ctx))
}

// reported matches what a parent that waits for no child is told when that is done.
var reported = HavePrefix("user: [subagent ")

var _ = Describe("Subagents", func() {
	spawn := harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add 2 and 3", "name": "Sum"})

	It("are objects between parent and child, and the parent's status mirrors them", Label("SUB-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", spawn), harness.After("subagent_create", harness.Answer("the child said: {{ .Last.Content }}"))},
			[]skeinv1.ScriptStep{harness.On("add", harness.Answer("5"))},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		ms := say(ctx, t, 1, "go")
		Expect(last(ms)).To(And(HavePrefix("the child said: "), ContainSubstring("5")))

		subs := subagents(ctx, ns)
		Expect(subs).To(HaveLen(1))
		sub := subs[0]
		parent, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(metav1.IsControlledBy(&sub, parent)).To(BeTrue())
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(&sub), &sub)).To(Succeed())
			g.Expect(sub.Status.Entry).NotTo(BeNil())
			e := *sub.Status.Entry
			g.Expect(e.Reference).To(Equal(sub.Name))
			g.Expect(e.Name).To(Equal("helper"))
			g.Expect(e.Title).To(Equal("Sum"))
			g.Expect(e.Description).NotTo(BeEmpty())
			g.Expect(e.Blocking).To(BeTrue())
			g.Expect(e.Resumable).To(BeTrue())
			g.Expect(e.SpawnGroupID).NotTo(BeEmpty())
			g.Expect(e.CreatedAt).NotTo(BeZero())
			g.Expect(e.Status).To(Equal("completed"))
			g.Expect(e.ParentCommunication).To(Equal(skeinv1.CommunicationImplicit))
			parent, err = t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parent.Status.Children).To(ConsistOf(e))
			g.Expect(parent.Status.ChildCount).To(BeEquivalentTo(1))
		}).Should(Succeed())

		child := cluster.Thread(ns, sub.Status.Entry.ThreadName)
		o, err := child.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(metav1.IsControlledBy(o, &sub)).To(BeTrue())
		Expect(string(o.UID)).To(Equal(sub.Status.Entry.ThreadID))
		Expect(o.Labels).To(HaveKeyWithValue(skeinv1.LabelManagedBy, skeinv1.ManagedByValue))
		Expect(texts(settled(ctx, child, 1))).To(Equal([]string{"user: add 2 and 3", "assistant: 5"}))
	}, SpecTimeout(2*time.Minute))

	It("that do not block report by a silent message, which starts a run of the parent", Label("SUB-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		worker := newGate(func(w http.ResponseWriter, req harness.ChatRequest, _ string) {
			harness.Say(w, req.Model, "the sum is 5")
		})
		t := familyWith(ctx, ns,
			[]skeinv1.ScriptStep{
				harness.On("go", spawn),
				harness.After("subagent_create", harness.Answer("started")),
				{Content: "noted: {{ .Last.Content }}"},
			},
			worker.model(ns, "worker"), helper())
		say(ctx, t, 1, "go")
		worker.open()
		ms := settled(ctx, t, 2)
		Expect(texts(ms)).To(ContainElement("assistant: started"))
		Expect(last(ms)).To(And(HavePrefix("noted: "), ContainSubstring("the sum is 5")))
		Expect(ms).To(ContainElement(And(HaveField("Silent", true), HaveField("Metadata", HaveKey("subagent_id")))))
		page, err := t.Page(ctx, "limit=100")
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveEach(HaveField("Silent", false)))
	}, SpecTimeout(2*time.Minute))

	It("are terminated and deleted with their parent, also during a run", Label("SUB-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		slow := []skeinv1.ScriptStep{
			harness.On("deep", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "bottom"})),
			harness.On("bottom", harness.Slow(time.Hour, harness.Answer("never"))),
		}
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "deep"})), harness.Answer("never")},
			slow, helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true }))
		Expect(t.Say(ctx, "go")).To(Succeed())
		threads := func(g Gomega) []skeinv1.Thread {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			return l.Items
		}
		var names []string
		Eventually(ctx, func(g Gomega) { // three generations, the last one in its model call
			all := threads(g)
			g.Expect(all).To(HaveLen(3))
			names = nil
			for _, o := range all {
				names = append(names, o.Name)
				runs, err := cluster.Thread(ns, o.Name).Runs(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(runs).To(HaveLen(1))
			}
		}).Should(Succeed())

		Expect(t.Terminate(ctx)).To(Succeed())
		for _, n := range names {
			th := cluster.Thread(ns, n)
			settled(ctx, th, 1)
			_, err := th.Queue(ctx, runtimev1.NewMessage{Content: "more"})
			Expect(err).To(MatchError(ContainSubstring("terminated")))
			Eventually(ctx, func(g Gomega) {
				o, err := th.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionTerminated, metav1.ConditionTrue)))
				g.Expect(o.Status.TerminatedAt).NotTo(BeZero())
			}).Should(Succeed())
			Expect(th.Messages(ctx)).NotTo(BeEmpty(), "reads still work")
		}
		Eventually(ctx, func(g Gomega) {
			for _, s := range subagents(ctx, ns) {
				g.Expect(s.Status.Entry).To(HaveField("Status", "terminated"))
			}
		}).Should(Succeed())

		By("deleting another tree while its deepest child runs")
		create(ctx, harness.NewThread(ns, "second", "parent"))
		second := ready(ctx, cluster.Thread(ns, "second"))
		Expect(second.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(threads(g)).To(HaveLen(6)) }).Should(Succeed())
		Expect(second.Delete(ctx)).To(Succeed())
		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(threads(g)).To(BeEmpty())
			g.Expect(subagents(ctx, ns)).To(BeEmpty())
		}).Should(Succeed())
		_, err := t.Messages(ctx)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(3*time.Minute))
})
