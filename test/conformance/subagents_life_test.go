package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// refuse has the API server refuse new objects of a resource with the title "refused" in a namespace, and waits until it does.
func refuse(ctx SpecContext, ns, resource string, probe client.Object) {
	GinkgoHelper()
	name := ns + "-" + resource
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{"skein.dev"}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "!has(object.spec.title) || object.spec.title != 'refused'", Message: "nobody may have that title"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
	}}
	create(ctx, policy, binding)
	DeferCleanup(func(ctx SpecContext) {
		Expect(cluster.Client.Delete(ctx, binding)).To(Succeed())
		Expect(cluster.Client.Delete(ctx, policy)).To(Succeed())
	})
	Eventually(ctx, func() bool {
		return apierrors.IsInvalid(cluster.Client.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll))
	}).Should(BeTrue())
}

// childLife gives the kinds of the messages about the life of children, in their order.
func childLife(ctx SpecContext, t *harness.Thread) (kinds []string) {
	GinkgoHelper()
	page, err := t.Page(ctx, "includeSilent=true&limit=1000")
	Expect(err).NotTo(HaveOccurred())
	for _, m := range page.Messages {
		if kind, ok := m.Metadata["status_kind"].(string); ok && m.Role == runtimev1.RoleSystem {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

var _ = Describe("The life of subagents", func() {
	blocking := func(s *skeinv1.AgentSubagent) { s.Blocking = true }
	spawn := func(title string) skeinv1.ScriptStep {
		return harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "add", "name": title})
	}
	never := []skeinv1.ScriptStep{harness.Slow(time.Hour, harness.Answer("late"))}

	It("begins with a refusal that the parent's model reads as the call's error", Label("SUB-03", "MSG-09"), func(ctx SpecContext) {
		for resource, probe := range map[string]func(ns string) client.Object{
			"subagents": func(ns string) client.Object {
				return &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}, Spec: skeinv1.SubagentSpec{
					ParentRef: skeinv1.LocalRef{Name: "p"}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: "x", Title: "refused"}}
			},
			"threads": func(ns string) client.Object {
				return harness.NewThread(ns, "probe", "a", func(s *skeinv1.ThreadSpec) { s.Title = "refused" })
			},
		} {
			ns := namespace(ctx)
			refuse(ctx, ns, resource, probe(ns))
			t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("go", spawn("refused")), harness.On("fine", spawn("Sum")), harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}"))},
				[]skeinv1.ScriptStep{harness.Answer("5")}, helper(blocking))
			Expect(last(say(ctx, t, 1, "go"))).To(And(HavePrefix("so: "), ContainSubstring("nobody may have that title")), resource)
			for _, s := range subagents(ctx, ns) {
				Eventually(ctx, func(g Gomega) {
					g.Expect(cluster.Client.Get(ctx, key(&s), &s)).To(Succeed())
					g.Expect(s.Status.Entry).To(HaveValue(HaveField("Status", "failed")))
					g.Expect(s.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonChildRefused)))
				}).Should(Succeed())
			}
			Expect(last(say(ctx, t, 2, "fine"))).To(Equal("so: 5"), "others are created")
		}
	}, SpecTimeout(3*time.Minute))

	It("may end by hand: the registry says terminated, and a parent that waits goes on", Label("SUB-08", "MSG-09"), func(ctx SpecContext) {
		for _, what := range []string{"thread", "subagent"} {
			ns := namespace(ctx)
			t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("go", spawn("Sum")), harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}"))}, never, helper(blocking))
			Expect(t.Say(ctx, "go")).To(Succeed())
			child := onlyChild(ctx, ns)
			Expect(cluster.Kubectl(ctx, "-n", ns, "delete", what, child.Name)).To(ContainSubstring("deleted"))
			Expect(last(settled(ctx, t, 1))).To(HavePrefix("so: the "))
			Expect(childLife(ctx, t)).To(Equal([]string{"created", "terminated"}), what)
			Eventually(ctx, func(g Gomega) {
				o, err := t.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				if what == "thread" {
					g.Expect(o.Status.Children).To(ConsistOf(HaveField("Status", "terminated")))
					g.Expect(o.Status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Terminated: 1})))
				} else {
					g.Expect(o.Status.Children).To(BeEmpty())
				}
			}).Should(Succeed())
		}
	}, SpecTimeout(3*time.Minute))

	It("begins before the first model step where the agent says so, and a variable decides on optional ones", Label("SUB-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		immediate := func(name, variable string) skeinv1.AgentSubagent {
			return helper(blocking, func(s *skeinv1.AgentSubagent) {
				s.Name, s.Immediate, s.Message, s.Optional = name, true, "look into "+name, variable
			})
		}
		create(ctx,
			harness.Scripted(ns, "parent", harness.Answer("known: {{ .Last.Content }}")), harness.Prompt(ns, "parent", "parent"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{immediate("law", ""), immediate("tax", "WITH_TAX")}
			}),
			harness.Scripted(ns, "worker", harness.Answer("done: {{ .Last.Content }}")), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.NewThread(ns, "without", "parent"),
			harness.NewThread(ns, "with", "parent", func(s *skeinv1.ThreadSpec) {
				s.Env = []skeinv1.EnvVar{{Name: "WITH_TAX", Value: ptr.To("true"), Type: "text"}}
			}))
		without, with := ready(ctx, cluster.Thread(ns, "without")), ready(ctx, cluster.Thread(ns, "with"))
		Expect(last(say(ctx, without, 1, "hello"))).To(Equal("known: done: look into law"))
		Expect(last(say(ctx, with, 1, "hello"))).To(HavePrefix("known: done: look into "))
		Expect(subagents(ctx, ns)).To(ConsistOf(HaveField("Spec.Name", "law"), HaveField("Spec.Name", "law"), HaveField("Spec.Name", "tax")))
		say(ctx, without, 2, "again")
		Expect(subagents(ctx, ns)).To(HaveLen(3))
		wrong := harness.Agent(ns, "wrong", "parent", func(s *skeinv1.AgentSpec) {
			s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Immediate = true })}
		})
		Expect(cluster.Client.Create(ctx, wrong)).To(MatchError(ContainSubstring("give immediate: true and message together")))
	}, SpecTimeout(3*time.Minute))

	It("is bounded when twenty calls are made at once", Label("SUB-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var calls []skeinv1.ScriptToolCall
		for range 20 {
			calls = append(calls, spawn("Sum").ToolCalls...)
		}
		create(ctx, harness.Scripted(ns, "parent", harness.On("go", skeinv1.ScriptStep{ToolCalls: calls}), harness.Answer("started")))
		prompt := harness.Prompt(ns, "parent", "parent", "builtin:subagents")
		prompt.Spec.ParallelToolCalls = true
		create(ctx, prompt, harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
			s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.MaxInstances = 100 })}
		}), harness.Scripted(ns, "worker", never...), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) { s.MaxInstances = 4 }),
			harness.NewThread(ns, "one", "parent"), harness.NewThread(ns, "two", "parent"))
		one, two := ready(ctx, cluster.Thread(ns, "one")), ready(ctx, cluster.Thread(ns, "two"))
		Expect(one.Say(ctx, "go")).To(Succeed())
		Expect(two.Say(ctx, "go")).To(Succeed())
		refused := 0
		for _, t := range []*harness.Thread{one, two} {
			for _, text := range texts(settled(ctx, t, 1)) {
				if strings.Contains(text, "which is its limit (maxInstances): try again later") {
					refused++
				}
			}
		}
		Expect(refused).To(Equal(36), "of both parents together")
		Expect(subagents(ctx, ns)).To(HaveLen(4))
	}, SpecTimeout(3*time.Minute))

	It("is shown with state, step and last activity", Label("SUB-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("go", spawn("Sum")), harness.Answer("done")}, []skeinv1.ScriptStep{harness.Answer("5")}, helper(blocking))
		say(ctx, t, 1, "go")
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "-n", ns, "get", "subagents")
			g.Expect(err).NotTo(HaveOccurred())
			lines := strings.Split(strings.TrimSpace(out), "\n")
			g.Expect(lines).To(HaveLen(2))
			g.Expect(strings.Fields(lines[0])).To(Equal(strings.Fields("NAME PARENT AGENT STATE STEP LAST ACTIVITY READY AGE")))
			fields := strings.Fields(lines[1])
			g.Expect(len(fields)).To(BeNumerically(">", 5), lines[1]) // what is not known yet has no field
			g.Expect(fields[1:5]).To(Equal([]string{"thread", "worker", "completed", "1"}))
			g.Expect(lines[1]).To(ContainSubstring("True"))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("is over for good after a while, with the conversation or without it", Label("SUB-02", "SUB-08"), func(ctx SpecContext) {
		for _, retain := range []skeinv1.ChildRetention{skeinv1.ChildPurge, skeinv1.ChildKeep} {
			ns := namespace(ctx)
			t := family(ctx, ns, []skeinv1.ScriptStep{harness.On("go", spawn("Sum")), harness.After("subagent_create", harness.Answer("so: {{ .Last.Content }}"))},
				[]skeinv1.ScriptStep{harness.Answer("5")}, helper(blocking, func(s *skeinv1.AgentSubagent) {
					s.TTLAfterFinished, s.Retain = &metav1.Duration{}, retain
				}))
			Expect(last(say(ctx, t, 1, "go"))).To(Equal("so: 5"))
			Eventually(ctx, func(g Gomega) {
				g.Expect(subagents(ctx, ns)).To(BeEmpty())
				var threads skeinv1.ThreadList
				g.Expect(cluster.Client.List(ctx, &threads, client.InNamespace(ns))).To(Succeed())
				g.Expect(threads.Items).To(ConsistOf(HaveField("Name", "thread")))
				o, err := t.Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(o.Status.ChildCount).To(BeZero())
			}).Should(Succeed())
			out, err := cluster.Plugin(ctx, "-n", ns, "retained", "-o", "json")
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Contains(out, "thread-helper-")).To(Equal(retain == skeinv1.ChildKeep), out)
			Expect(childLife(ctx, t)).To(Equal([]string{"created", "completed"}), "its removal is not its end")
		}
	}, SpecTimeout(3*time.Minute))

	It("may begin by hand, with a new thread or an existing one, and the parent is told", Label("SUB-01", "MSG-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns, []skeinv1.ScriptStep{{Content: "noted: {{ .Last.Content }}", Times: ptr.To[int32](0)}}, []skeinv1.ScriptStep{{Content: "5", Times: ptr.To[int32](0)}}, helper())
		create(ctx, harness.NewThread(ns, "old", "worker"), harness.NewThread(ns, "other", "worker"))
		old := ready(ctx, cluster.Thread(ns, "old"))
		say(ctx, old, 1, "before")
		declared := func(name string, edit func(*skeinv1.SubagentSpec)) *skeinv1.Subagent {
			s := &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "thread"}, Name: "helper"}}
			edit(&s.Spec)
			return s
		}
		create(ctx, declared("new", func(s *skeinv1.SubagentSpec) { s.AgentRef, s.Message = skeinv1.LocalRef{Name: "worker"}, "add" }))
		takenIn(ctx, t, And(HavePrefix("user: [subagent helper (new) completed]"), HaveSuffix("5")))
		create(ctx, declared("adopts", func(s *skeinv1.SubagentSpec) { s.ThreadRef, s.Resumable = &skeinv1.LocalRef{Name: "old"}, true }))
		Eventually(ctx, func(g Gomega) {
			g.Expect(childLife(ctx, t)).To(Equal([]string{"created", "completed", "adopted"}))
			o, err := old.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Parent).To(Equal("thread"))
			p, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(p.Status.Children).To(ContainElement(And(HaveField("ThreadName", "old"), HaveField("Status", "completed"), HaveField("Reference", "adopts"))))
		}).Should(Succeed())
		Expect(texts(settled(ctx, old, 1))).To(HaveLen(2), "its conversation is as it was")
		say(ctx, old, 2, "again")
		takenIn(ctx, t, And(HavePrefix("user: [subagent helper (adopts) completed]"), HaveSuffix("5")))

		for name, says := range map[string]string{"old": "already", "thread": "its own child"} {
			wrong := declared("wrong-"+name, func(s *skeinv1.SubagentSpec) { s.ThreadRef = &skeinv1.LocalRef{Name: name} })
			if err := cluster.Client.Create(ctx, wrong); err != nil {
				Expect(err).To(MatchError(ContainSubstring(says)))
				continue
			}
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(wrong), wrong)).To(Succeed())
				g.Expect(wrong.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(says)))))
			}).Should(Succeed())
		}
		below := declared("cycle", func(s *skeinv1.SubagentSpec) {
			s.ParentRef.Name, s.ThreadRef = "old", &skeinv1.LocalRef{Name: "thread"}
		})
		create(ctx, below)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, key(below), below)).To(Succeed())
			g.Expect(below.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("its own ancestor"))))
		}).Should(Succeed())
		for _, bad := range []map[string]any{
			{"parentRef": map[string]any{"name": "thread"}, "name": "x"},
			{"parentRef": map[string]any{"name": "thread"}, "name": "x", "threadRef": map[string]any{"name": "other"}, "message": "m"},
			{"parentRef": map[string]any{"name": "thread"}, "name": "x", "agentRef": map[string]any{"name": "worker"}, "taskRef": "abc"},
		} {
			var spec skeinv1.SubagentSpec
			Expect(json.Unmarshal(must(json.Marshal(bad)), &spec)).To(Succeed())
			Expect(apierrors.IsInvalid(cluster.Client.Create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bad"}, Spec: spec}))).To(BeTrue(), fmt.Sprint(bad))
		}
		Expect(t.Delete(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			var threads skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &threads, client.InNamespace(ns))).To(Succeed())
			g.Expect(threads.Items).To(ConsistOf(HaveField("Name", "other")), "the adopted one goes with its parent")
		}).Should(Succeed())
	}, SpecTimeout(4*time.Minute))
})
