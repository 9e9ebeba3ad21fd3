package definitions

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/prompt"
)

// Prompts resolves Prompts with their skills and with the prompts that they include.
type Prompts struct {
	reader   reader
	contents *objects.Contents
	schemas  *schemaCache
}

// Resolve assembles a Prompt's text, reads its skills and checks its schemas. It reads the included prompts
// again each time, so that an edit of one applies from the next run on.
func (ps *Prompts) Resolve(ctx context.Context, p *skeinv1.Prompt) (*definition.Prompt, error) {
	text, err := ps.build(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := ps.schemas.check("spec.requiredSchema", p.Spec.RequiredSchema); err != nil {
		return nil, err
	}
	if err := ps.schemas.check("spec.responseSchema", p.Spec.ResponseSchema); err != nil {
		return nil, err
	}
	skills, err := ps.resolveSkills(ctx, p)
	if err != nil {
		return nil, err
	}
	return &definition.Prompt{Name: p.Name, Spec: p.Spec, Text: text, Skills: skills}, nil
}

// PromptText implements ports.Definitions.
func (d *Resolver) PromptText(ctx context.Context, namespace, name string) (*prompt.Template, error) {
	var p skeinv1.Prompt
	if err := d.reader.get(ctx, "Prompt", namespace, name, "what names it", &p); err != nil {
		return nil, err
	}
	text, err := d.Prompts.build(ctx, &p)
	if err != nil {
		return nil, objects.Within("Prompt", name, err)
	}
	return text, nil
}

func (ps *Prompts) build(ctx context.Context, p *skeinv1.Prompt) (*prompt.Template, error) {
	text, err := prompt.Build(ctx, p.Name, &p.Spec, &promptLoader{ps, p.Namespace})
	var mistake *prompt.Error
	if errors.As(err, &mistake) {
		return nil, objects.NotReady(mistake.Reason, "%s", mistake.Message)
	}
	return text, err
}

// promptLoader reads what the prompts of a namespace include.
type promptLoader struct {
	prompts   *Prompts
	namespace string
}

func (l *promptLoader) Prompt(ctx context.Context, name, field string) (*skeinv1.PromptSpec, error) {
	var p skeinv1.Prompt
	if err := l.prompts.reader.get(ctx, "Prompt", l.namespace, name, field, &p); err != nil {
		return nil, err
	}
	return &p.Spec, nil
}

func (l *promptLoader) ConfigMapKey(ctx context.Context, ref corev1.ConfigMapKeySelector, field string) ([]byte, error) {
	data, _, err := l.prompts.contents.ConfigMapKey(ctx, l.namespace, ref, field)
	return data, err
}

func (l *promptLoader) Within(name string, err error) error {
	var mistake *prompt.Error
	if errors.As(err, &mistake) {
		return objects.NotReady(mistake.Reason, "Prompt %q: %s", name, mistake.Message)
	}
	return objects.Within("Prompt", name, err)
}

// variables returns the variables of a prompt: its own env, those that it declares, then the same for what it
// includes. When the prompt cannot be assembled, it returns only the prompt's own.
func (ps *Prompts) variables(ctx context.Context, p *skeinv1.Prompt) ([]skeinv1.EnvVar, error) {
	own := envOf(&p.Spec)
	text, err := ps.build(ctx, p)
	var unready *definition.NotReadyError
	switch {
	case errors.As(err, &unready):
		return own, nil
	case err != nil:
		return nil, err
	}
	for _, i := range text.Included() {
		own = append(own, envOf(i.Spec)...)
	}
	return own, nil
}

// envOf returns the variables that a prompt has values for and those that it declares.
func envOf(spec *skeinv1.PromptSpec) []skeinv1.EnvVar {
	if len(spec.Variables) == 0 {
		return spec.Env[:len(spec.Env):len(spec.Env)]
	}
	out := make([]skeinv1.EnvVar, 0, len(spec.Env)+len(spec.Variables))
	out = append(out, spec.Env...)
	for _, v := range spec.Variables {
		out = append(out, skeinv1.EnvVar{Name: v.Name, Type: v.Type, Required: v.Required, Scoped: v.Scoped, Description: v.Description})
	}
	return out
}
