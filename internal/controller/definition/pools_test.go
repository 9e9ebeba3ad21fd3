package definition

import (
	"context"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

var _ = Describe("The SandboxPool of code", Label("COD-09", "K8S-02"), func() {
	var (
		e      *Env
		c      *checker
		agents *reconciler[skeinv1.Agent, *skeinv1.Agent]
	)
	code := skeinv1.CodeSource{Inline: "export default () => 1"}
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		c = &checker{reader: e.Client, defs: definitions.New(e.Client, objects.NewContents(e.Client, e.Client), compile.Compile, providers.NewFactory(nil))}
		c.defs.RequirePools()
		agents = of(e, func(a *skeinv1.Agent) *skeinv1.DefinitionStatus { return &a.Status }, c.agent)
	})
	made := func(ctx context.Context, objs ...client.Object) {
		GinkgoHelper()
		e.Create(ctx, objs...)
		for _, o := range objs {
			switch o := o.(type) {
			case *skeinv1.Prompt:
				e.SetReady(ctx, o, &o.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
			case *skeinv1.Tool:
				e.SetReady(ctx, o, &o.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
			}
		}
	}
	prompt := func(tools ...skeinv1.PromptTool) *skeinv1.Prompt {
		return &skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{ModelRef: skeinv1.LocalRef{Name: "m"}, Tools: tools}}
	}
	agent := func() *skeinv1.Agent {
		return &skeinv1.Agent{ObjectMeta: Meta("a"), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "p"}}}}
	}
	state := func(ctx context.Context, a *skeinv1.Agent) metav1.Condition {
		GinkgoHelper()
		Reconcile(ctx, agents, a)
		return conditions.Ready(Get(ctx, e, a).Status.Conditions)
	}

	DescribeTable("is not needed by tools without code", func(ctx SpecContext, tool skeinv1.PromptTool) {
		made(ctx, prompt(tool), &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{HTTP: &skeinv1.HTTPTool{URL: "https://example.com"}}})
		a := agent()
		e.Create(ctx, a)
		Expect(state(ctx, a).Status).To(Equal(metav1.ConditionTrue))
	},
		Entry("a family of files", skeinv1.PromptTool{Builtin: skeinv1.BuiltinFiles}),
		Entry("an HTTP request", skeinv1.PromptTool{Name: "t"}),
	)

	DescribeTable("is reported as missing by an Agent whose code needs it, until it exists", func(ctx SpecContext, says string, edit func(*skeinv1.Agent), objs ...client.Object) {
		made(ctx, objs...)
		a := agent()
		if edit != nil {
			edit(a)
		}
		e.Create(ctx, a)
		c := state(ctx, a)
		Expect(c).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
		Expect(c.Message).To(And(ContainSubstring(says), ContainSubstring(`SandboxPool "default"`), ContainSubstring("kubectl apply -f -")))
		Expect(a.Status.Conditions).NotTo(ContainElement(HaveField("Type", skeinv1.ConditionStalled)))
		// The command in the message creates the pool.
		command := c.Message[strings.Index(c.Message, "echo "):strings.Index(c.Message, " | kubectl")]
		out, err := exec.CommandContext(ctx, "sh", "-c", command).Output()
		Expect(err).NotTo(HaveOccurred())
		pool := &skeinv1.SandboxPool{}
		Expect(yaml.UnmarshalStrict(out, pool)).To(Succeed())
		pool.TypeMeta = metav1.TypeMeta{}
		e.Create(ctx, pool)
		Expect(state(ctx, a).Status).To(Equal(metav1.ConditionTrue))
	},
		Entry("a tool", `the code of Tool "t"`, nil, prompt(skeinv1.PromptTool{Name: "t"}), &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Code: &code}}),
		Entry("run_code", "run_code", nil, prompt(skeinv1.PromptTool{Builtin: skeinv1.BuiltinCode})),
		Entry("a hook of the prompt", "the hook after_create_message", nil,
			&skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{Hooks: []skeinv1.Hook{{Hook: skeinv1.HookAfterCreateMessage, Code: code}}}}),
		Entry("a hook of the agent", "the hook after_create_message", func(a *skeinv1.Agent) {
			a.Spec.Hooks = []skeinv1.Hook{{Hook: skeinv1.HookAfterCreateMessage, Code: code}}
		}, prompt()),
		Entry("a handler", `the handler of Agent "a"`, func(a *skeinv1.Agent) {
			a.Spec.SideA = skeinv1.AgentSide{Handler: &skeinv1.SideHandler{Code: code}}
		}),
		Entry("a tool of a prompt that is called as a tool", `the code of Tool "t"`, nil, prompt(skeinv1.PromptTool{Prompt: "q"}),
			&skeinv1.Prompt{ObjectMeta: Meta("q"), Spec: skeinv1.PromptSpec{ExposeAsTool: true, Tools: []skeinv1.PromptTool{{Name: "t"}, {Prompt: "p"}}}},
			&skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Code: &code}}),
	)

	It("keeps the runs of the agent waiting, too", func(ctx SpecContext) {
		made(ctx, prompt(skeinv1.PromptTool{Builtin: skeinv1.BuiltinCode}))
		e.Create(ctx, agent())
		_, err := c.defs.Agent(ctx, "demo", "a")
		Expect(err).To(MatchError(ContainSubstring(`SandboxPool "default"`)))
	})

	It("is missed by a Tool, an Effect and a ThreadEndpoint in a namespace without any", func(ctx SpecContext) {
		t := &skeinv1.Tool{ObjectMeta: Meta("t"), Spec: skeinv1.ToolSpec{Description: "x", Code: &code}}
		f := &skeinv1.Effect{ObjectMeta: Meta("f"), Spec: skeinv1.EffectSpec{Code: code}}
		p := &skeinv1.ThreadEndpoint{ObjectMeta: Meta("p"), Spec: skeinv1.ThreadEndpointSpec{Path: "/p", Code: code}}
		e.Create(ctx, t, f, p)
		for _, err := range []error{c.tool(ctx, t), c.effect(ctx, f), c.endpoint(ctx, p)} {
			Expect(err).To(MatchError(And(ContainSubstring("needs a SandboxPool"), ContainSubstring("kubectl apply"))))
		}
		e.Create(ctx, &skeinv1.SandboxPool{ObjectMeta: Meta("any")})
		for _, err := range []error{c.tool(ctx, t), c.effect(ctx, f), c.endpoint(ctx, p)} {
			Expect(err).NotTo(HaveOccurred())
		}
	})
})
