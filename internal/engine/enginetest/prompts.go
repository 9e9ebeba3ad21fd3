package enginetest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/prompt"
)

// PutPrompt adds a prompt that prompts of agents may include, or replaces one.
func (d *Definitions) PutPrompt(name string, spec skeinv1.PromptSpec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prompts[name] = &spec
}

// PromptText implements ports.Definitions.
func (d *Definitions) PromptText(ctx context.Context, _, name string) (*prompt.Template, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	spec, err := included{d}.Prompt(ctx, name, "")
	if err != nil {
		return nil, err
	}
	return prompt.Build(ctx, name, spec, included{d})
}

// included finds the prompts that prompts include. The caller holds the lock of the definitions.
type included struct{ *Definitions }

func (d included) Prompt(_ context.Context, name, _ string) (*skeinv1.PromptSpec, error) {
	if spec := d.prompts[name]; spec != nil {
		return spec, nil
	}
	for _, a := range d.agents {
		for _, s := range []*definition.Side{a.A, a.B} {
			if s != nil && s.Prompt.Name == name {
				return &s.Prompt.Spec, nil
			}
		}
	}
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: fmt.Sprintf("Prompt %q does not exist: create it", name)}
}

func (d included) ConfigMapKey(context.Context, corev1.ConfigMapKeySelector, string) ([]byte, error) {
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: "there are no ConfigMaps here"}
}

func (d included) Within(_ string, err error) error { return err }
