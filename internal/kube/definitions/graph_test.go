package definitions_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("What an agent reaches", func() {
	scoped := func(name string) skeinv1.EnvVar { return skeinv1.EnvVar{Name: name, Scoped: true} }
	exposed := func(a *skeinv1.Agent) *skeinv1.Agent {
		a.Spec.ExposeAsTool, a.Spec.ToolDescription = true, "x"
		return a
	}
	dual := func(a *skeinv1.Agent, b string) *skeinv1.Agent {
		a.Spec.Type, a.Spec.SideB = skeinv1.AgentDualAI, &skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: b}}
		return a
	}

	It("counts for the names that are not inherited: subagents, agents as tools, and prompts as tools", Label("ENV-04"), func(ctx SpecContext) {
		p, called, second := prompt("p", "m"), prompt("called", "m"), prompt("second", "m")
		p.Spec.Tools = []skeinv1.PromptTool{{Prompt: "called"}, {Agent: "b"}}
		called.Spec.Env, called.Spec.Tools = []skeinv1.EnvVar{scoped("CALLED")}, []skeinv1.PromptTool{{Prompt: "called"}, {Agent: "c"}}
		second.Spec.Env = []skeinv1.EnvVar{scoped("PROMPT_OF_B"), {Name: "OPEN"}}
		a, b, c, s := agent("a", "p"), exposed(agent("b", "second")), exposed(agent("c", "p")), agent("s", "p")
		a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "s", AgentRef: skeinv1.LocalRef{Name: "s"}}}
		c.Spec.Env, s.Spec.Env = []skeinv1.EnvVar{scoped("OF_C")}, []skeinv1.EnvVar{scoped("OF_S")}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, p, called, second, a, b, c, s))
		Expect(d.Variables.ScopedEnv(ctx, kubetest.Namespace, "a")).To(Equal([]string{"CALLED", "OF_C", "OF_S", "PROMPT_OF_B"}))
		Expect(d.Variables.ScopedEnv(ctx, kubetest.Namespace, "b")).To(Equal([]string{"PROMPT_OF_B"}))
	})

	It("has the variables of prompts that are called as tools, which count while they are", Label("ENV-01", "ENV-06", "AGT-05"), func(ctx SpecContext) {
		p, called := prompt("p", "m"), prompt("called", "m")
		p.Spec.Tools, p.Spec.Env = []skeinv1.PromptTool{{Prompt: "called"}}, []skeinv1.EnvVar{{Name: "TONE", Value: new("kind")}}
		called.Spec.Env = []skeinv1.EnvVar{{Name: "TONE", Value: new("dry"), Type: skeinv1.EnvText},
			{Name: "GONE", ValueFrom: &skeinv1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "k"}}}}
		called.Spec.Variables = []skeinv1.VariableDeclaration{{Name: "KEY", Required: true}}
		c := kubetest.Cluster(interceptor.Funcs{}, p, called, agent("a", "p"))
		got, err := definitions.NewEnv(resolver(c).Variables, c).Layers(ctx, &store.Thread{Namespace: kubetest.Namespace, Agent: "a"})
		Expect(err).NotTo(HaveOccurred(), "what is wrong with a called prompt keeps nobody else from working")
		Expect(got.Values).To(Equal([]domain.EnvValue{
			{Name: "TONE", Value: "kind", Type: store.EnvSecret, Source: domain.EnvFromPrompt, Side: "a"},
			{Name: "TONE", Value: "dry", Type: store.EnvText, Source: domain.EnvFromPrompt, Called: "called"},
		}))
		Expect(got.Declared).To(ContainElement(And(HaveField("Name", "KEY"), HaveField("Required", true))))
	})

	It("has what becomes of the threads of an agent that is asked", Label("AGT-04", "SUB-02"), func(ctx SpecContext) {
		p := prompt("p", "m")
		p.Spec.Tools = []skeinv1.PromptTool{{Agent: "b", Mode: skeinv1.AgentToolAsk, TTLAfterFinished: &metav1.Duration{Duration: time.Hour}, Retain: skeinv1.ChildKeep}}
		got, err := resolver(kubetest.Cluster(interceptor.Funcs{}, scripted("m", skeinv1.ScriptStep{Content: "hi"}), p, prompt("q", "m"), agent("a", "p"), exposed(agent("b", "q")))).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(got.A.Agents).To(HaveExactElements(And(HaveField("Ask", true), HaveField("TTLAfterFinished", HaveValue(HaveField("Duration", time.Hour))), HaveField("Retain", skeinv1.ChildKeep))))
	})

	It("has the arguments and the hooks of both sides", Label("AGT-02", "AGT-04", "HOK-01"), func(ctx SpecContext) {
		p, q, single := prompt("p", "m"), prompt("q", "m"), prompt("single", "m")
		schema := func(name string) *runtime.RawExtension {
			return &runtime.RawExtension{Raw: []byte(`{"type":"object","required":["` + name + `"]}`)}
		}
		p.Spec.RequiredSchema, q.Spec.RequiredSchema, q.Spec.Hooks = schema("a"), schema("b"), []skeinv1.Hook{
			hook(skeinv1.HookBeforeCreateMessage, "export default () => 'q';"), hook(skeinv1.HookAfterThreadCreated, "export default () => 'q';"),
		}
		p.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookBeforeCreateMessage, "export default () => 'p';")}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, p, q, single, exposed(dual(agent("both", "p"), "q")), exposed(dual(agent("one", "single"), "q"))))
		called, err := d.CalledAgent(ctx, kubetest.Namespace, "both")
		Expect(err).NotTo(HaveOccurred())
		Expect(called.Ask).To(BeTrue(), "two models have no seat for the person")
		Expect(called.Arguments).To(MatchJSON(`{"type":"object","allOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]}`))
		called, err = d.CalledAgent(ctx, kubetest.Namespace, "one")
		Expect(err).NotTo(HaveOccurred())
		Expect(called.Arguments).To(MatchJSON(`{"type":"object","required":["b"]}`))
		hooks, err := d.Hooks(ctx, kubetest.Namespace, "both")
		Expect(err).NotTo(HaveOccurred())
		Expect(hooks).To(HaveLen(2))
		Expect(hooks[skeinv1.HookBeforeCreateMessage].Owner).To(Equal("Prompt p"), "side a's comes first")
		Expect(hooks[skeinv1.HookAfterThreadCreated].Owner).To(Equal("Prompt q"))
	})
})
