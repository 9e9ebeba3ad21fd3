package conformance

import (
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The operator", func() {
	It("shows conditions, columns, short names and the category, and kubectl wait works on every kind", Label("K8S-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "later", remind), harness.CodeTool(ns, "noop", "export default { execute: async () => 1 };", nil),
			harness.Endpoint(ns, "report", "/report", "export default () => 'report';"),
			gatewayKeys(ns), gatewayOf(ns, "chat", "parent"),
			&skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}},
			&skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "far"}, Spec: skeinv1.ScheduledEffectSpec{
				ThreadRef: &skeinv1.LocalRef{Name: "thread"}, Effect: "later", After: &metav1.Duration{Duration: time.Hour}}},
			scheduled(ns, "once", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: "thread"}, Effect: "later", At: new(skeinv1.NewTimestamp(time.Date(2090, 1, 31, 9, 0, 0, 0, time.UTC)))}))
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hi"})), harness.After("subagent_create", harness.Answer("ok"))},
			[]skeinv1.ScriptStep{harness.Echo()}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		say(ctx, t, 1, "go")
		for _, kind := range []string{"agents", "prompts", "models", "tools", "effects", "threadendpoints", "threadgateways", "threads", "subagents", "scheduledeffects", "sandboxpools"} {
			_, err := cluster.Kubectl(ctx, "-n", ns, "wait", "--for=condition=Ready", kind, "--all", "--timeout=60s")
			Expect(err).NotTo(HaveOccurred())
			raw, err := cluster.Kubectl(ctx, "-n", ns, "get", kind, "-o", "json")
			Expect(err).NotTo(HaveOccurred())
			var list struct {
				Items []struct {
					Metadata metav1.ObjectMeta
					Status   struct {
						ObservedGeneration int64
						Conditions         []metav1.Condition
					}
				}
			}
			Expect(json.Unmarshal([]byte(raw), &list)).To(Succeed())
			Expect(list.Items).NotTo(BeEmpty(), kind)
			for _, o := range list.Items {
				Expect(o.Status.ObservedGeneration).To(Equal(o.Metadata.Generation), kind)
				for _, c := range o.Status.Conditions {
					Expect(c.Reason).NotTo(BeEmpty(), kind)
					Expect(c.ObservedGeneration).To(Equal(o.Metadata.Generation), "%s %s", kind, c.Type)
				}
			}
		}
		for _, short := range []string{"ag", "pr", "mdl", "tl", "ef", "tep", "tgw", "thr", "sub", "sef", "sbp"} {
			out, err := cluster.Kubectl(ctx, "-n", ns, "get", short)
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Split(out, "\n")[0]).To(MatchRegexp(`NAME.*READY.*AGE`), short)
		}
		out, err := cluster.Kubectl(ctx, "-n", ns, "get", "sef")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(MatchRegexp(`(?m)^NAME +THREAD +EFFECT +SCHEDULE +NEXT `), MatchRegexp(`(?m)^far +thread +later +1h0m0s +20\d\d-\d\d-\d\dT[0-9:]+Z `),
			MatchRegexp(`(?m)^once +thread +later +2090-01-31T09:00:00\S*Z +2090-01-31T09:00:00Z `)))
		out, err = cluster.Kubectl(ctx, "-n", ns, "get", "skein", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("thread.skein.dev/thread"), ContainSubstring("agent.skein.dev/parent"), ContainSubstring("subagent.skein.dev/"), ContainSubstring("scheduledeffect.skein.dev/far")))
		_, err = cluster.Kubectl(ctx, "-n", ns, "wait", "--for=jsonpath={.status.lastRun.outcome}=Succeeded", "thread/thread", "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(3*time.Minute))

	DescribeTable("refuses wrong specs at admission with what to do", Label("K8S-02"), func(ctx SpecContext, kind, spec, want string) {
		ns := namespace(ctx)
		_, err := cluster.KubectlIn(ctx, "apiVersion: skein.dev/v1alpha1\nkind: "+kind+"\nmetadata: {name: wrong, namespace: "+ns+"}\nspec: "+spec+"\n", "apply", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("an Agent without a Prompt", "Agent", `{sideA: {label: x}}`, "set exactly one of promptRef and handler", SpecTimeout(2*time.Minute)),
		Entry("an Agent as a tool without a description", "Agent", `{sideA: {promptRef: {name: p}}, exposeAsTool: true}`, "needs toolDescription", SpecTimeout(2*time.Minute)),
		Entry("a stop property without a stop tool", "Agent", `{sideA: {promptRef: {name: p}, stopToolResponseProperty: x}}`, "needs stopTool", SpecTimeout(2*time.Minute)),
		Entry("a scripted Model without a script", "Model", `{provider: scripted}`, "needs spec.script", SpecTimeout(2*time.Minute)),
		Entry("an OpenAI Model without a model id", "Model", `{provider: openai}`, "needs spec.model", SpecTimeout(2*time.Minute)),
		Entry("a Tool with two sources", "Tool", `{description: x, code: {inline: "1", configMapKeyRef: {name: a, key: b}}}`, "set exactly one of inline and configMapKeyRef", SpecTimeout(2*time.Minute)),
		Entry("a Prompt's tool with neither name nor family", "Prompt", `{text: x, modelRef: {name: m}, tools: [{}]}`, "exactly one of name (of a Tool object), builtin", SpecTimeout(2*time.Minute)),
		Entry("a ScheduledEffect with two times", "ScheduledEffect", `{threadRef: {name: t}, effect: e, after: 1s, at: "2030-01-01T00:00:00.000000Z"}`, "exactly one of at", SpecTimeout(2*time.Minute)),
		Entry("a SandboxPool with more warm than max", "SandboxPool", `{warm: 5, max: 2}`, "warm must not be above max", SpecTimeout(2*time.Minute)),
		Entry("a SandboxPool with more warm than maxWarm", "SandboxPool", `{warm: 5, maxWarm: 2}`, "warm must not be above maxWarm", SpecTimeout(2*time.Minute)),
		Entry("a SandboxPool with more maxWarm than max", "SandboxPool", `{maxWarm: 5, max: 2}`, "maxWarm must not be above max", SpecTimeout(2*time.Minute)),
		Entry("a SandboxPool that takes Skein's own labels", "SandboxPool", `{podMetadata: {labels: {skein.dev/sandbox-state: claimed}}}`, "Skein's own: use another prefix", SpecTimeout(2*time.Minute)),
		Entry("a SandboxPool that takes Skein's own annotations", "SandboxPool", `{podMetadata: {annotations: {skein.dev/x: other}}}`, "Skein's own: use another prefix", SpecTimeout(2*time.Minute)),
	)

	It("refuses changes of what is fixed", Label("K8S-02"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadSpec) { s.UserID = "ada" })
		_, err := cluster.Kubectl(ctx, "-n", t.Namespace, "patch", "thread", t.Name, "--type=merge", "-p", `{"spec":{"userID":"eve"}}`)
		Expect(err).To(MatchError(ContainSubstring("userID is fixed")))
	}, SpecTimeout(2*time.Minute))

	It("turns references that do not resolve yet into conditions that heal", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) { s.Message = "early bird" }))
		expect := func(o client.Object, conditions *[]metav1.Condition, status metav1.ConditionStatus, reason, says string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(o), o)).To(Succeed())
				g.Expect(*conditions).To(ContainElement(And(condition(skeinv1.ConditionReady, status, reason), HaveField("Message", ContainSubstring(says)))))
			}).Should(Succeed())
		}
		th := harness.NewThread(ns, "thread", "agent")
		expect(th, &th.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"agent"`)
		ag := harness.Agent(ns, "agent", "prompt")
		create(ctx, ag)
		expect(ag, &ag.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"prompt"`)
		pr := harness.Prompt(ns, "prompt", "model", "noop")
		create(ctx, pr)
		expect(pr, &pr.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"model"`)
		model := harness.OpenAI(ns, "model", "http://127.0.0.1:1/v1", "key")
		create(ctx, model)
		expect(model, &model.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"key"`)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": "k"}})
		expect(model, &model.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		expect(pr, &pr.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"noop"`)
		// Were the tool there before the manager knows that the model is gone, all would be ready for a moment, and the
		// waiting message be asked of a model that cannot be reached.
		Expect(cluster.Client.Delete(ctx, model)).To(Succeed())
		expect(pr, &pr.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `"model"`)
		create(ctx, harness.CodeTool(ns, "noop", "export default { execute: async () => 1 };", nil), harness.Scripted(ns, "model", harness.Echo()))
		expect(th, &th.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		Expect(texts(settled(ctx, cluster.Thread(ns, "thread"), 1))).To(Equal([]string{"user: early bird", "assistant: echo: early bird"}), "the waiting message is answered by itself")
	}, SpecTimeout(3*time.Minute))

	It("never writes spec, and labels and owns what it makes", Label("K8S-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		manifest := `
apiVersion: skein.dev/v1alpha1
kind: Thread
metadata: {name: thread, namespace: ` + ns + `, labels: {app: shop}}
spec: {agentRef: {name: parent}, title: Orders}
`
		create(ctx,
			harness.Scripted(ns, "parent", harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hi"})), harness.After("subagent_create", harness.Answer("ok"))),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) { s.Subagents = []skeinv1.AgentSubagent{helper()} }),
			harness.Scripted(ns, "worker", harness.Echo()), harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"))
		apply := func() string {
			GinkgoHelper()
			out, err := cluster.KubectlIn(ctx, manifest, "apply", "--server-side", "--field-manager=gitops", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), "no conflict with a field of the operator's")
			return out
		}
		apply()
		t := ready(ctx, cluster.Thread(ns, "thread"))
		say(ctx, t, 1, "go")
		before, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		apply()
		after, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(after.Spec).To(Equal(before.Spec))
		for _, f := range after.ManagedFields {
			if f.Manager != "gitops" {
				Expect(f.FieldsV1.GetRawString()).NotTo(ContainSubstring(`"f:spec"`), "%s wrote spec", f.Manager)
			}
		}
		for _, s := range subagents(ctx, ns) {
			Expect(s.Labels).To(HaveKeyWithValue(skeinv1.LabelManagedBy, skeinv1.ManagedByValue))
			Expect(s.OwnerReferences).To(ContainElement(And(HaveField("Kind", "Thread"), HaveField("Controller", HaveValue(BeTrue())))))
			Expect(s.Labels).NotTo(HaveKey("app"), "labels that a pruner selects by are not copied")
		}
	}, SpecTimeout(2*time.Minute))

	It("keeps the conversation out of etcd, and status small", Label("K8S-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		const canary = "heliotrope-4471"
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		w, err := cluster.Client.Watch(ctx, &skeinv1.ThreadList{}, client.InNamespace(ns))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		const turns = 10
		began := time.Now()
		for i := range turns {
			say(ctx, t, i+1, canary)
		}
		writes := -1 // the first event is the object as it was
		for told := false; !told; writes++ {
			var e watch.Event
			Eventually(ctx, w.ResultChan()).Should(Receive(&e))
			o, ok := e.Object.(*skeinv1.Thread)
			Expect(ok).To(BeTrue(), "%v", e)
			told = o.Status.Messages == 2*turns && !meta.IsStatusConditionTrue(o.Status.Conditions, skeinv1.ConditionExecuting)
		}
		// A turn of more than a second is shown as under way too, where a write a second is the bound.
		Expect(writes).To(BeNumerically("<=", max(turns, 2+int(time.Since(began).Seconds()))), "at most one status write a turn")
		AddReportEntry("status writes for 10 turns", writes)
		raw, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,events,configmaps,secrets,subagents", "-o", "json")
		Expect(err).NotTo(HaveOccurred())
		Expect(raw).NotTo(ContainSubstring(canary))
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		status, err := json.Marshal(o.Status)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(status)).To(BeNumerically("<", 4096))
		Expect(o.Status.LastRun).To(HaveField("Steps", int32(1)))
	}, SpecTimeout(2*time.Minute))
})
