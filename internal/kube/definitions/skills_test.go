package definitions_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/tool/skill"
)

var _ = Describe("The skills of a prompt", Label("AGT-08"), func() {
	inMap := skeinv1.SkillText{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "texts"}, Key: "SKILL.md"}}
	texts := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: kubetest.Meta("texts"), Data: map[string]string{"SKILL.md": text}}
	}

	It("have their texts inline or in ConfigMaps, and their descriptions in either place", func(ctx SpecContext) {
		p := prompt("p", "m")
		p.Spec.Skills = []skeinv1.PromptSkill{
			{Name: "here", Description: "d", Instructions: skeinv1.SkillText{Inline: "Do."}, Parameters: &runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}},
			{Name: "there", Instructions: inMap}, {Name: "both", Description: "ours", Instructions: inMap},
		}
		got, err := resolver(kubetest.Cluster(interceptor.Funcs{}, texts("---\nname: x\ndescription: theirs\n---\nDo that."))).Prompts.Resolve(ctx, p)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Skills).To(Equal([]skill.Skill{
			{Name: "here", Description: "d", Instructions: "Do.", Parameters: []byte(`{"type":"object"}`)},
			{Name: "there", Description: "theirs", Instructions: "Do that."}, {Name: "both", Description: "ours", Instructions: "Do that."},
		}))
	})

	DescribeTable("say what is wrong with them", func(ctx SpecContext, s skeinv1.PromptSkill, text, reason string, says ...string) {
		p := prompt("p", "m")
		s.Name, p.Spec.Skills = "s", []skeinv1.PromptSkill{{Name: "fine", Description: "d", Instructions: skeinv1.SkillText{Inline: "Do."}}, s}
		c := kubetest.Cluster(interceptor.Funcs{})
		if text != "" {
			kubetest.Create(ctx, c, texts(text))
		}
		if s.Parameters != nil {
			p.Spec.Skills[1].Instructions.Inline = "Do."
		}
		_, err := resolver(c).Prompts.Resolve(ctx, p)
		Expect(err).To(kubetest.NotReady(reason, says...))
	},
		Entry("no ConfigMap", skeinv1.PromptSkill{Instructions: inMap}, "", skeinv1.ReasonReferenceNotFound, `ConfigMap "texts" with key "SKILL.md"`, "spec.skills[1].instructions.configMapKeyRef"),
		Entry("no description", skeinv1.PromptSkill{Instructions: inMap}, "Do.", skeinv1.ReasonInvalidSpec, "no front matter with a description", "spec.skills[1].description"),
		Entry("front matter that is no YAML", skeinv1.PromptSkill{Instructions: inMap}, "---\na: [\n---\nDo.", skeinv1.ReasonInvalidSpec, `key "SKILL.md" of ConfigMap "texts"`, "not YAML"),
		Entry("a wrong schema", skeinv1.PromptSkill{Description: "d", Parameters: &runtime.RawExtension{Raw: []byte(`{"type":3}`)}}, "", skeinv1.ReasonInvalidSchema, "spec.skills[1].parameters"),
	)
})
