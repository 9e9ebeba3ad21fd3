package definitions_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func scripted(name string, steps ...skeinv1.ScriptStep) *skeinv1.Model {
	return &skeinv1.Model{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted, Script: &skeinv1.ModelScript{Steps: steps}}}
}

func withKey(name, secret string) *skeinv1.Model {
	return &skeinv1.Model{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ModelSpec{
		Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: "http://127.0.0.1:1/v1",
		Credentials: &skeinv1.ModelCredentials{SecretKeyRef: corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "apiKey"}},
	}}
}

func prompt(name, model string, tools ...string) *skeinv1.Prompt {
	p := &skeinv1.Prompt{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.PromptSpec{Text: "be kind", ModelRef: skeinv1.LocalRef{Name: model}}}
	for _, t := range tools {
		p.Spec.Tools = append(p.Spec.Tools, skeinv1.PromptTool{Name: t})
	}
	return p
}

func agent(name, prompt string) *skeinv1.Agent {
	return &skeinv1.Agent{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.AgentSpec{SideA: skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: prompt}}}}
}

func tool(name, code string) *skeinv1.Tool {
	return &skeinv1.Tool{ObjectMeta: kubetest.Meta(name), Spec: skeinv1.ToolSpec{Description: "d", Code: &skeinv1.CodeSource{Inline: code, Language: "typescript"}}}
}

const goodCode = "export default { execute: async (): Promise<number> => 1 };"

var _ = Describe("Definitions", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

	It("resolves an agent with all that it refers to", func() {
		c := kubetest.Cluster(interceptor.Funcs{}, scripted("m", skeinv1.ScriptStep{Content: "hi"}), prompt("p", "m", "order-totals", "x.y"), agent("a", "p"),
			tool("order-totals", goodCode), tool("x.y", goodCode))
		a, err := resolver(c).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(a.A.Prompt.Spec.Text).To(Equal("be kind"))
		Expect(a.A.Model.Steps).To(HaveLen(1))
		Expect(a.A.Tools).To(HaveExactElements(
			And(HaveField("Name", "order_totals"), HaveField("ObjectName", "order-totals"), HaveField("Module.Code", Not(ContainSubstring("Promise<number>")))),
			HaveField("Name", "x_y")))
	})

	It("resolves both sides of an agent, each with what is its own", Label("AGT-01"), func() {
		a, p, q := agent("a", "p"), prompt("p", "m"), prompt("q", "m", "order-totals")
		a.Spec.Type, a.Spec.SideB = skeinv1.AgentDualAI, &skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "q"}, Label: "Critic"}
		a.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, "export default () => 'agent';")}
		q.Spec.Hooks = []skeinv1.Hook{hook(skeinv1.HookAfterCreateMessage, "export default () => 'q';")}
		objs := []client.Object{scripted("m", skeinv1.ScriptStep{Content: "hi"}), p, tool("order-totals", goodCode), a}
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{}, objs...)).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `Prompt "q" does not exist`, "spec.sideB.promptRef"))
		got, err := resolver(kubetest.Cluster(interceptor.Funcs{}, append(objs, q)...)).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).NotTo(HaveOccurred())
		Expect([]string{got.A.Name, got.A.Prompt.Name, got.B.Name, got.B.Prompt.Name, got.B.Spec.Label}).To(Equal([]string{"a", "p", "b", "q", "Critic"}))
		Expect(got.A.Tools).To(BeEmpty())
		Expect(got.B.Tools).To(HaveExactElements(HaveField("Name", "order_totals")))
		Expect(got.A.Hooks[skeinv1.HookAfterCreateMessage].Owner).To(Equal("Agent a"))
		Expect(got.B.Hooks[skeinv1.HookAfterCreateMessage].Owner).To(Equal("Prompt q"))
		Expect(objects.PromptsOf(&a.Spec)).To(Equal([]string{"p", "q"}), "by which agents are found when a prompt changes")
	})

	DescribeTable("says which object is missing and where it is named", func(objs []client.Object, says ...string) {
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{}, objs...)).Agent(ctx, kubetest.Namespace, "a")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, says...))
	},
		Entry("the agent", nil, `Agent "a" does not exist`, `"demo"`),
		Entry("the prompt", []client.Object{agent("a", "p")}, `Agent "a": Prompt "p" does not exist`, "promptRef"),
		Entry("the model", []client.Object{agent("a", "p"), prompt("p", "m")}, `Prompt "p": Model "m" does not exist`, "modelRef"),
		Entry("a tool", []client.Object{agent("a", "p"), prompt("p", "m", "t"), scripted("m", skeinv1.ScriptStep{})}, `Tool "t" does not exist`, "spec.tools"),
		Entry("the secret", []client.Object{agent("a", "p"), prompt("p", "m"), withKey("m", "s")}, `Secret "s"`, `"apiKey"`, "secretKeyRef"),
	)

	It("says where code does not compile", Label("TOL-02"), func() {
		c := kubetest.Cluster(interceptor.Funcs{})
		_, err := resolver(c).Tools.Resolve(ctx, tool("t", "export default {\n  a: = 1\n}"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonCompileFailed, "t.ts:2:6:", "line 2, column 6"))
	})

	It("does not hold a failure of the compiler against the source", func() {
		c := kubetest.Cluster(interceptor.Funcs{})
		failing := true
		d := definitions.New(c, objects.NewContents(c, c), func(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
			if failing {
				return sandbox.Module{}, &sandbox.Error{Name: "Error", Message: "the compiler did not start"}
			}
			return compile.Compile(filename, source, lang)
		}, providers.NewFactory(nil))
		_, err := d.Tools.Resolve(ctx, tool("t", goodCode))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInternalError, "did not start"))
		failing = false
		_, err = d.Tools.Resolve(ctx, tool("t", goodCode))
		Expect(err).NotTo(HaveOccurred())
	})

	It("compiles code of a ConfigMap by the ending of its key, and again when it changes", func() {
		m := &corev1.ConfigMap{ObjectMeta: kubetest.Meta("code"), Data: map[string]string{"t.js": "export default 1", "t.ts": "export default 1 as number"}}
		c := kubetest.Cluster(interceptor.Funcs{}, m)
		d := resolver(c)
		from := func(key string) *skeinv1.Tool {
			t := tool("t-"+strings.ReplaceAll(key, ".", "-"), "")
			t.Spec.Code = &skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "code"}, Key: key}}
			return t
		}
		_, err := d.Tools.Resolve(ctx, from("none.ts"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `ConfigMap "code"`, `"none.ts"`))
		first, err := d.Tools.Resolve(ctx, from("t.ts"))
		Expect(err).NotTo(HaveOccurred())
		_, err = d.Tools.Resolve(ctx, from("t.js"))
		Expect(err).NotTo(HaveOccurred())
		m.Data = map[string]string{"t.js": "export default 1 as number", "t.ts": "export default 2 as number"}
		Expect(c.Update(ctx, m)).To(Succeed())
		_, err = d.Tools.Resolve(ctx, from("t.js"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonCompileFailed, "t.js:1"), "TypeScript in a .js key")
		second, err := d.Tools.Resolve(ctx, from("t.ts"))
		Expect(err).NotTo(HaveOccurred())
		Expect(second.Digest).NotTo(Equal(first.Digest))
	})

	It("reads a Secret once a version, and never shows its value", func() {
		reads := 0
		c := kubetest.Cluster(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Secret); ok {
				reads++
			}
			return c.Get(ctx, key, o, opts...)
		}})
		d := resolver(c)
		m := withKey("m", "s")
		m.UID, m.Generation = "u", 1
		_, err := d.Models.Resolve(ctx, m)
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `Secret "s"`))
		s := &corev1.Secret{ObjectMeta: kubetest.Meta("s"), Data: map[string][]byte{"apiKey": []byte("canary-1\n")}}
		kubetest.Create(ctx, c, s)
		reads = 0
		first, err := d.Models.Resolve(ctx, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(first.APIKey).To(Equal("canary-1"), "the newline of a file is not part of the key")
		_, err = d.Models.Resolve(ctx, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(reads).To(Equal(1))
		Expect(first.Version).NotTo(ContainSubstring("canary"))
		s.Data["apiKey"] = []byte("canary-2")
		Expect(c.Update(ctx, s)).To(Succeed())
		second, err := d.Models.Resolve(ctx, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(second.APIKey).To(Equal("canary-2"))
		Expect(second.Version).NotTo(Equal(first.Version), "so that clients are made anew")

		kubetest.Create(ctx, c, m)
		loaded, err := d.Load(ctx, kubetest.Namespace, "model", "m")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(loaded)).NotTo(Or(ContainSubstring("canary"), ContainSubstring("secretKeyRef")))
		Expect(loaded).To(MatchJSON(`{"name":"m","provider":"openai","model":"m","endpoint":"http://127.0.0.1:1/v1"}`))
	})

	DescribeTable("refuses scripts that cannot be played", func(step skeinv1.ScriptStep, says string) {
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{})).Models.Resolve(ctx, scripted("m", step))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidScript, says))
	},
		Entry("a bad expression", skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "("}}, "("),
		Entry("a bad template", skeinv1.ScriptStep{Content: "{{ .Last"}, "step 1"),
	)

	It("plays a script of a ConfigMap, and says what is wrong with it", func() {
		m := &corev1.ConfigMap{ObjectMeta: kubetest.Meta("script"), Data: map[string]string{"good": "- content: hi\n", "bad": "- contents: hi\n", "empty": ""}}
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, m))
		from := func(key string) *skeinv1.Model {
			s := scripted("m-" + key)
			s.Spec.Script = &skeinv1.ModelScript{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "script"}, Key: key}}
			return s
		}
		good, err := d.Models.Resolve(ctx, from("good"))
		Expect(err).NotTo(HaveOccurred())
		Expect(good.Steps).To(HaveExactElements(HaveField("Content", "hi")))
		_, err = d.Models.Resolve(ctx, from("bad"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidScript, `key "bad"`, "contents"))
		_, err = d.Models.Resolve(ctx, from("empty"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidScript, "no steps"))
	})

	DescribeTable("refuses schemas that cannot be used", func(schema, says string) {
		t := tool("t", goodCode)
		t.Spec.Parameters = &runtime.RawExtension{Raw: []byte(schema)}
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{})).Tools.Resolve(ctx, t)
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSchema, says))
	},
		Entry("a wrong keyword value", `{"type":"object","properties":{"a":{"type":"nummer"}}}`, "not a valid JSON Schema"),
		Entry("no object", `{"type":"string"}`, "type: object"),
		Entry("a file of the manager", `{"$ref":"file:///etc/passwd"}`, "$ref must stay within"),
	)

	It("refuses tools that a model could not tell apart, and names that it could not say", func() {
		Expect(definitions.CheckToolNames(&prompt("p", "m", "a-b", "a.b").Spec)).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, `"a-b"`, `"a.b"`, `"a_b"`))
		Expect(definitions.CheckToolNames(&prompt("p", "m", "a", "a").Spec)).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "twice"))
		Expect(definitions.CheckToolNames(&prompt("p", "m", "a", "b").Spec)).To(Succeed())
		skilled := prompt("p", "m", "skill")
		Expect(definitions.CheckToolNames(&skilled.Spec)).To(Succeed())
		skilled.Spec.Skills = []skeinv1.PromptSkill{{Name: "sql"}}
		Expect(definitions.CheckToolNames(&skilled.Spec)).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "the tool of spec.skills", `Tool "skill"`))
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{})).Tools.Resolve(ctx, tool(strings.Repeat("x", 65), goodCode))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidSpec, "65", "64"))
	})

	It("finds an effect by its plain and its qualified name", Label("EFF-02"), func() {
		code := skeinv1.CodeSource{Inline: "export default { handler: async () => 1 }"}
		d := resolver(kubetest.Cluster(interceptor.Funcs{},
			&skeinv1.Effect{ObjectMeta: kubetest.Meta("remind-me"), Spec: skeinv1.EffectSpec{Code: code}},
			&skeinv1.Effect{ObjectMeta: kubetest.Meta("acme.remind"), Spec: skeinv1.EffectSpec{Code: code}}))
		for name, object := range map[string]string{"remind-me": "remind-me", "remind_me": "remind-me", "acme/remind": "acme.remind"} {
			e, err := d.Effect(ctx, kubetest.Namespace, name)
			Expect(err).NotTo(HaveOccurred(), name)
			Expect(e.ObjectName).To(Equal(object))
		}
		_, err := d.Effect(ctx, kubetest.Namespace, "none")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `Effect "none"`))
	})

	It("lists names and loads by kind, and fails on the unknown", Label("AGT-07"), func() {
		d := resolver(kubetest.Cluster(interceptor.Funcs{}, agent("b", "p"), agent("a", "p"), prompt("p", "m")))
		Expect(d.Names(ctx, kubetest.Namespace, "agent")).To(Equal([]string{"a", "b"}))
		Expect(d.Names(ctx, kubetest.Namespace, "model")).To(BeEmpty())
		Expect(d.Load(ctx, kubetest.Namespace, "prompt", "p")).To(MatchJSON(`{"name":"p","text":"be kind","modelRef":{"name":"m"}}`))
		_, err := d.Load(ctx, kubetest.Namespace, "agent", "none")
		Expect(err).To(MatchError(ContainSubstring(`agent "none" does not exist`)))
		_, err = d.Names(ctx, kubetest.Namespace, "tool")
		Expect(err).To(MatchError(ContainSubstring(`"agent", "prompt" or "model"`)))
	})
})

var _ = Describe("The fallbacks of a Model", Label("AGT-06"), func() {
	with := func(m *skeinv1.Model, names ...string) *skeinv1.Model {
		for _, n := range names {
			m.Spec.Fallbacks = append(m.Spec.Fallbacks, skeinv1.LocalRef{Name: n})
		}
		return m
	}
	step := skeinv1.ScriptStep{Content: "x"}

	It("are resolved with it, without their own, and their changes are its", func(ctx SpecContext) {
		a, b := with(scripted("a", step), "b"), with(scripted("b", step), "a") // each is the fallback of the other
		c := kubetest.Cluster(interceptor.Funcs{}, a, b)
		d := resolver(c)
		got, err := d.Models.Resolve(ctx, a)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Fallbacks).To(HaveLen(1))
		Expect(got.Fallbacks[0]).To(And(HaveField("Name", "b"), HaveField("Fallbacks", BeEmpty())))
		b.Generation++
		Expect(c.Update(ctx, b)).To(Succeed())
		again, err := d.Models.Resolve(ctx, a)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Version).NotTo(Equal(got.Version))
	})

	DescribeTable("that cannot be asked are told", func(ctx SpecContext, m *skeinv1.Model, reason, want string) {
		embeds := scripted("embeds", step)
		embeds.Spec.Capabilities = &skeinv1.ModelCapabilities{Embeddings: ptr.To(true)}
		_, err := resolver(kubetest.Cluster(interceptor.Funcs{}, embeds, scripted("b", step), withKey("keyless", "none"))).Models.Resolve(ctx, m)
		Expect(err).To(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(want))))
	},
		Entry("the Model itself", with(scripted("a", step), "b", "a"), skeinv1.ReasonInvalidSpec, "spec.fallbacks[1] is the Model itself"),
		Entry("one twice", with(scripted("a", step), "b", "b"), skeinv1.ReasonInvalidSpec, `names Model "b" a second time`),
		Entry("one that is not there", with(scripted("a", step), "gone"), skeinv1.ReasonReferenceNotFound, `Model "gone" does not exist`),
		Entry("one without its Secret", with(scripted("a", step), "keyless"), skeinv1.ReasonReferenceNotFound, `Model "keyless": `),
		Entry("one for embeddings", with(scripted("a", step), "embeds"), skeinv1.ReasonInvalidSpec, "is for embeddings"),
	)
})
