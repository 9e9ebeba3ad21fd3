package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/tool"
)

// maxScriptSteps is the maximum of spec.script.steps. It applies to scripts in ConfigMaps too.
const maxScriptSteps = 500

func parseSteps(text []byte) ([]skeinv1.ScriptStep, error) {
	var steps []skeinv1.ScriptStep
	if err := yaml.UnmarshalStrict(text, &steps); err != nil {
		return nil, fmt.Errorf("it is not a YAML list of steps: %w", err)
	}
	switch {
	case len(steps) == 0:
		return nil, errors.New("it holds no steps: write a YAML list with at least one")
	case len(steps) > maxScriptSteps:
		return nil, fmt.Errorf("it holds %d steps, more than %d", len(steps), maxScriptSteps)
	}
	return steps, nil
}

// ResolveEffect compiles an Effect and checks its schema.
func (d *Resolver) ResolveEffect(ctx context.Context, e *skeinv1.Effect) (*definition.Effect, error) {
	if err := d.schemas.check("spec.parameters", e.Spec.Parameters); err != nil {
		return nil, err
	}
	c, err := d.compileCode(ctx, codeOwner{"Effect", e.Namespace, e.Name, string(e.UID), e.Generation, "spec.code"}, e.Spec.Code, inspect.Effect)
	if err != nil {
		return nil, err
	}
	return &definition.Effect{ObjectName: e.Name, Spec: e.Spec, Module: c.module, Digest: c.digest}, nil
}

// compileCode finds the source and compiles it, or returns the remembered module. It refuses code that cannot be used
// for its declared purpose.
func (d *Resolver) compileCode(ctx context.Context, owner codeOwner, src skeinv1.CodeSource, use inspect.Use) (*compiled, error) {
	source, filename, lang := src.Inline, owner.name+".ts", sandbox.TypeScript
	if src.Language == string(sandbox.JavaScript) {
		filename, lang = owner.name+".js", sandbox.JavaScript
	}
	version, field := "inline", owner.field+".configMapKeyRef"
	if ref := src.ConfigMapKeyRef; ref != nil {
		text, v, err := d.contents.ConfigMapKey(ctx, owner.namespace, *ref, field)
		if err != nil {
			return nil, err
		}
		if text == nil {
			return nil, objects.NotReady(skeinv1.ReasonReferenceNotFound, "key %q of ConfigMap %q does not exist: create it, or correct %s", ref.Key, ref.Name, field)
		}
		source, filename, lang, version = string(text), ref.Key, sandbox.TypeScript, v
		if strings.HasSuffix(ref.Key, ".js") || strings.HasSuffix(ref.Key, ".mjs") {
			lang = sandbox.JavaScript
		}
	}
	c, err := d.code.get(owner, version, filename, source, lang)
	if err != nil {
		return nil, err
	}
	if problems := use.Problems(c.module.Facts); len(problems) > 0 {
		return nil, invalidCode(filename, source, problems)
	}
	return c, nil
}

// CheckToolNames refuses two tools of a prompt that the model would call by the same name: Tools, agents, prompts,
// and the tool that activates skills.
func CheckToolNames(p *skeinv1.PromptSpec) error {
	seen := map[string]string{}
	if len(p.Skills) > 0 {
		seen[tool.SkillTool] = "the tool of spec.skills"
	}
	for _, t := range p.Tools {
		object, kind := t.Name, "Tool"
		switch {
		case t.Agent != "":
			object, kind = t.Agent, "Agent"
		case t.Prompt != "":
			object, kind = t.Prompt, "Prompt"
		case t.Name == "":
			continue
		}
		name, called := fmt.Sprintf("%s %q", kind, object), tool.Name(object)
		switch first, twice := seen[called]; {
		case twice && first == name:
			return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools names %s twice: remove one", name)
		case twice:
			return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools: the model would call both %s and %s by the name %q: rename one of them", first, name, called)
		}
		seen[called] = name
	}
	return nil
}
