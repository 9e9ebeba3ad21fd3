package definitions

import (
	"context"
	"errors"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
)

const fieldCompactionModel = "spec.compaction.modelRef"

// resolveCompactor resolves the Model that sums up the older turns of a prompt; nil when it is the prompt's own. unusable
// says why it cannot be used. The prompt works without it.
func (d *Resolver) resolveCompactor(ctx context.Context, p *skeinv1.Prompt) (m *definition.Model, unusable, err error) {
	c := p.Spec.Compaction
	if c == nil || c.ModelRef == nil || c.ModelRef.Name == p.Spec.ModelRef.Name {
		return nil, nil, nil
	}
	var object skeinv1.Model
	if err = d.reader.get(ctx, "Model", p.Namespace, c.ModelRef.Name, fieldCompactionModel, &object); err == nil {
		err = CheckWrites(fieldCompactionModel, object.Name, &object.Spec)
	}
	if err == nil {
		m, err = d.Models.Resolve(ctx, &object)
	}
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return nil, err, nil
	}
	return m, nil, err
}

// CheckCompaction returns a *definition.NotReadyError when a prompt's compaction cannot work. own is the prompt's Model, and
// by the one that sums up, which may be the same.
func CheckCompaction(p *skeinv1.Prompt, own, by *skeinv1.Model) error {
	if err := CheckWrites(fieldCompactionModel, by.Name, &by.Spec); err != nil {
		return err
	}
	c := p.Spec.Compaction
	if (c.Mode == "" || c.Mode == skeinv1.CompactionAuto) && (own.Spec.Capabilities == nil || own.Spec.Capabilities.ContextWindow == 0) {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "Model %q does not say how much it reads: set its spec.capabilities.contextWindow in tokens, or spec.compaction.mode: manual here", own.Name)
	}
	return nil
}
