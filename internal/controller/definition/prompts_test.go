package definition

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

var _ = Describe("What a prompt is made of", Label("AGT-05"), func() {
	var (
		e *Env
		c *checker
	)
	prompt := func(name string, parts ...skeinv1.PromptPart) *skeinv1.Prompt {
		p := &skeinv1.Prompt{ObjectMeta: Meta(name), Spec: skeinv1.PromptSpec{ModelRef: skeinv1.LocalRef{Name: "m"}, Parts: parts}}
		if len(parts) == 0 {
			p.Spec.Text = "text of " + name
		}
		return p
	}
	include := func(name string) skeinv1.PromptPart { return skeinv1.PromptPart{Include: name} }
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		c = &checker{reader: e.Client, defs: definitions.New(e.Client, objects.NewContents(e.Client, e.Client), compile.Compile, providers.NewFactory(nil))}
		m := &skeinv1.Model{ObjectMeta: Meta("m"), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted, Script: &skeinv1.ModelScript{Steps: []skeinv1.ScriptStep{{Content: "x"}}}}}
		e.Create(ctx, m)
		Reconcile(ctx, of(e, func(m *skeinv1.Model) *skeinv1.DefinitionStatus { return &m.Status }, c.model), m)
	})
	check := func(ctx context.Context, p *skeinv1.Prompt) error {
		GinkgoHelper()
		var now skeinv1.Prompt
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(p), &now)).To(Succeed())
		return c.prompt(ctx, &now)
	}

	It("is checked with all that it includes", func(ctx SpecContext) {
		root := prompt("root", include("middle"))
		e.Create(ctx, root)
		Expect(check(ctx, root)).To(MatchError(ContainSubstring(`Prompt "middle" does not exist in namespace`)))
		middle := prompt("middle", include("leaf"))
		e.Create(ctx, middle)
		Expect(check(ctx, root)).To(MatchError(And(ContainSubstring(`Prompt "middle": `), ContainSubstring(`"leaf" does not exist`), ContainSubstring("spec.parts[0].include"))))
		leaf := prompt("leaf")
		e.Create(ctx, leaf)
		Expect(check(ctx, root)).To(Succeed())
		leaf.Spec.Text, leaf.Spec.Parts = "", []skeinv1.PromptPart{include("root")}
		Expect(e.Client.Update(ctx, leaf)).To(Succeed())
		Expect(check(ctx, root)).To(MatchError(ContainSubstring("root → middle → leaf → root")))
		leaf.Spec.Parts = []skeinv1.PromptPart{{Text: "{{ argument.x }}"}}
		Expect(e.Client.Update(ctx, leaf)).To(Succeed())
		Expect(check(ctx, root)).To(MatchError(And(ContainSubstring(`Prompt "leaf": spec.parts[0].text, line 1: {{ argument.x }}`), ContainSubstring("{{ arguments.NAME }}"))))
		leaf.Spec.Parts = []skeinv1.PromptPart{{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "texts"}, Key: "k"}}}
		Expect(e.Client.Update(ctx, leaf)).To(Succeed())
		Expect(check(ctx, root)).To(MatchError(ContainSubstring(`ConfigMap "texts" with key "k" does not exist`)))
		e.Create(ctx, &corev1.ConfigMap{ObjectMeta: Meta("texts"), Data: map[string]string{"k": "fine"}})
		Expect(check(ctx, root)).To(Succeed())
		text, err := c.defs.PromptText(ctx, root.Namespace, "root")
		Expect(err).NotTo(HaveOccurred())
		Expect(text.Included()).To(HaveLen(2))
	})

	It("reaches those that include it, however far", func(ctx SpecContext) {
		for _, p := range []*skeinv1.Prompt{prompt("a", include("b")), prompt("b", include("c")), prompt("c"), prompt("d")} {
			e.Create(ctx, p)
		}
		Expect(watches.Reach(ctx, e.Client, &skeinv1.PromptList{}, Meta("c").Namespace, objects.IndexInclude, "c")).To(ConsistOf(
			HaveField("Name", "a"), HaveField("Name", "b")))
	})

	It("is no Model for embeddings, where a Model has to write", func(ctx SpecContext) {
		vectors := &skeinv1.Model{ObjectMeta: Meta("vectors"), Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted, Capabilities: &skeinv1.ModelCapabilities{Embeddings: ptr.To(true)}}}
		e.Create(ctx, vectors)
		Reconcile(ctx, of(e, func(m *skeinv1.Model) *skeinv1.DefinitionStatus { return &m.Status }, c.model), vectors)
		refused := func(field string) OmegaMatcher {
			return And(MatchError(ContainSubstring(field+` names Model "vectors", which is for embeddings only`)), BeAssignableToTypeOf(&definition.NotReadyError{}))
		}
		p := prompt("p")
		p.Spec.ModelRef.Name = "vectors"
		e.Create(ctx, p)
		Expect(check(ctx, p)).To(refused("spec.modelRef"))
		fine := prompt("fine")
		e.Create(ctx, fine)
		Reconcile(ctx, of(e, func(p *skeinv1.Prompt) *skeinv1.DefinitionStatus { return &p.Status }, c.prompt), fine)

		handler := skeinv1.AgentSide{Handler: &skeinv1.SideHandler{Code: skeinv1.CodeSource{Inline: "export default async () => {}"},
			Models: []skeinv1.HandlerModel{{Name: "own", ModelRef: skeinv1.LocalRef{Name: "vectors"}}}}}
		prompted := func(name string) skeinv1.AgentSide { return skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: name}} }
		for field, a := range map[string]*skeinv1.Agent{
			"spec.modelRef":                         {ObjectMeta: Meta("prompted"), Spec: skeinv1.AgentSpec{SideA: prompted("p")}},
			"spec.sideA.handler.models[0].modelRef": {ObjectMeta: Meta("handler"), Spec: skeinv1.AgentSpec{SideA: handler}},
		} {
			e.Create(ctx, a)
			_, err := c.defs.Agent(ctx, a.Namespace, a.Name)
			Expect(err).To(refused(field))
			if a.Spec.SideA.Handler != nil {
				Expect(c.agent(ctx, a)).To(refused(field))
			}
		}

		a := &skeinv1.Agent{ObjectMeta: Meta("titled"), Spec: skeinv1.AgentSpec{SideA: prompted("fine"), TitleModelRef: &skeinv1.LocalRef{Name: "vectors"}}}
		e.Create(ctx, a)
		var list []metav1.Condition
		c.titles(ctx, a, conditions.Writer{List: &list})
		Expect(list).To(ConsistOf(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("for embeddings only")))))
		resolved, err := c.defs.Agent(ctx, a.Namespace, a.Name)
		Expect(err).NotTo(HaveOccurred())
		Expect(resolved.Titles).To(BeNil())
	})

	It("has schemas that can be used", func(ctx SpecContext) {
		p := prompt("p")
		p.Spec.RequiredSchema = &runtime.RawExtension{Raw: []byte(`{"type":"objekt"}`)}
		e.Create(ctx, p)
		Expect(check(ctx, p)).To(MatchError(ContainSubstring("spec.requiredSchema must be the schema of an object")))
		p.Spec.RequiredSchema, p.Spec.ResponseSchema = nil, &runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"a":{"type":3}}}`)}
		Expect(e.Client.Update(ctx, p)).To(Succeed())
		Expect(check(ctx, p)).To(MatchError(ContainSubstring("spec.responseSchema is not a valid JSON Schema")))
	})
})
