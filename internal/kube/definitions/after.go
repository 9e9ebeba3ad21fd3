package definitions

import (
	"context"
	"errors"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// Fields of an Agent that name the models used after a run.
const (
	fieldEmbeddingModel = "spec.memory.embeddingModelRef"
	fieldTitleModel     = "spec.titleModelRef"
)

// resolveModelsAfterRun resolves the models that an agent uses after its runs: those of its memory and of its titles.
func (d *Resolver) resolveModelsAfterRun(ctx context.Context, a *skeinv1.Agent, out *definition.Agent) (err error) {
	if out.Memory, err = d.modelAfterRun(ctx, a, objects.MemoryModelRef(a), fieldEmbeddingModel); err != nil {
		return err
	}
	if out.Memory != nil {
		if err := CheckEmbeds(out.Memory.Name, &out.Memory.Spec); err != nil {
			return err
		}
	}
	if a.Spec.TitlePolicy == skeinv1.TitleNever {
		return nil
	}
	if a.Spec.TitleModelRef != nil {
		var unusable *definition.NotReadyError
		if out.Titles, err = d.modelAfterRun(ctx, a, a.Spec.TitleModelRef, fieldTitleModel); err == nil {
			err = CheckWrites(fieldTitleModel, out.Titles.Name, &out.Titles.Spec)
		}
		if errors.As(err, &unusable) {
			out.Titles = nil
			return nil // threads run without titles, and a condition of the Agent reports it
		}
		return err
	}
	// A scripted model only plays its script, which contains no title.
	if out.A != nil && out.A.Model.Name != "" && out.A.Model.Spec.Provider != skeinv1.ProviderScripted {
		own := out.A.Model
		out.Titles = &own
	}
	return nil
}

// modelAfterRun resolves a Model that an agent uses after its runs, or returns nil if ref is nil. field is the field of the Agent that
// names the Model, for errors.
func (d *Resolver) modelAfterRun(ctx context.Context, a *skeinv1.Agent, ref *skeinv1.LocalRef, field string) (*definition.Model, error) {
	if ref == nil {
		return nil, nil
	}
	var m skeinv1.Model
	if err := d.reader.get(ctx, "Model", a.Namespace, ref.Name, field, &m); err != nil {
		return nil, err
	}
	resolved, err := d.Models.Resolve(ctx, &m)
	if err != nil {
		return nil, objects.Within("Model", m.Name, err)
	}
	return resolved, nil
}

// CheckEmbeds returns a *definition.NotReadyError when a Model that is to serve a memory does not return embeddings.
func CheckEmbeds(name string, m *skeinv1.ModelSpec) error {
	if m.Capabilities.Embeds() {
		return nil
	}
	return objects.NotReady(skeinv1.ReasonInvalidSpec, "Model %q returns no embeddings: name an embedding model in %s, or set spec.capabilities.embeddings: true on this Model if it is one", name, fieldEmbeddingModel)
}

// CheckWrites returns a *definition.NotReadyError when a Model that is to generate text is one for embeddings. field is the field that names it.
func CheckWrites(field, name string, m *skeinv1.ModelSpec) error {
	if !m.Capabilities.Embeds() {
		return nil
	}
	return objects.NotReady(skeinv1.ReasonInvalidSpec, "%s names Model %q, which is for embeddings only: name a Model that generates text, or remove spec.capabilities.embeddings from this Model if it does", field, name)
}

// CheckMemory returns a *definition.NotReadyError when a prompt offers the memory tools but its agent has no memory.
func CheckMemory(a *skeinv1.Agent, p *skeinv1.Prompt) error {
	offers := slices.ContainsFunc(p.Spec.Tools, func(t skeinv1.PromptTool) bool { return t.Builtin == skeinv1.BuiltinMemory })
	if offers && a.Spec.Memory == nil {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "Prompt %q offers the built-in tools \"memory\", but the agent has no memory: set %s, or remove the tools from the prompt", p.Name, fieldEmbeddingModel)
	}
	return nil
}
