package definitions

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/prompt"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// resolveSkills reads the texts of a Prompt's skills and checks their schemas (AGT-08).
func (ps *Prompts) resolveSkills(ctx context.Context, p *skeinv1.Prompt) ([]skill.Skill, error) {
	if len(p.Spec.Skills) == 0 {
		return nil, nil
	}
	out := make([]skill.Skill, 0, len(p.Spec.Skills))
	for i := range p.Spec.Skills {
		spec, field := &p.Spec.Skills[i], fmt.Sprintf("spec.skills[%d]", i)
		if err := ps.schemas.check(field+".parameters", spec.Parameters); err != nil {
			return nil, err
		}
		s, err := ps.resolveSkill(ctx, p.Namespace, spec, field)
		if err != nil {
			return nil, err
		}
		out = append(out, *s)
	}
	return out, nil
}

func (ps *Prompts) resolveSkill(ctx context.Context, namespace string, spec *skeinv1.PromptSkill, field string) (*skill.Skill, error) {
	text, from := spec.Instructions.Inline, field+".instructions.inline"
	if ref := spec.Instructions.ConfigMapKeyRef; ref != nil {
		from = field + ".instructions.configMapKeyRef"
		data, _, err := ps.contents.ConfigMapKey(ctx, namespace, *ref, from)
		if err != nil {
			return nil, err
		}
		if data == nil {
			return nil, objects.NotReady(skeinv1.ReasonReferenceNotFound, "key %q of ConfigMap %q does not exist: create it, or correct %s", ref.Key, ref.Name, from)
		}
		text, from = string(data), fmt.Sprintf("%s: key %q of ConfigMap %q", from, ref.Key, ref.Name)
	}
	description, instructions, err := prompt.ParseSkill(text)
	if err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s: %v", from, err)
	}
	if spec.Description != "" {
		description = spec.Description
	}
	if description == "" {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec,
			"%s has no front matter with a description: add one, or set %s.description; the model reads it to decide whether to activate the skill", from, field)
	}
	s := &skill.Skill{Name: spec.Name, Description: description, Instructions: instructions}
	if spec.Parameters != nil {
		s.Parameters = spec.Parameters.Raw
	}
	return s, nil
}
