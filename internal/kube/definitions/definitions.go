package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/thread"
)

// Resolver implements ports.Definitions over a cache. The controllers check definitions with the same functions,
// so that a condition and a run always agree on what is wrong.
type Resolver struct {
	Models    *Models
	Prompts   *Prompts
	Tools     *Tools
	Code      *Code
	Endpoints *Endpoints
	Gateways  *Gateways
	Webhooks  *Webhooks
	Pools     *Pools
	Variables *Variables

	reader  reader
	schemas *schemaCache
}

var _ ports.Definitions = (*Resolver)(nil)

// New returns the port. cached is a cache of the definitions, contents reads Secrets and ConfigMaps,
// compile turns source into modules, and models checks whether a Model can be used.
func New(cached client.Reader, contents *objects.Contents, compile Compile, models model.Factory) *Resolver {
	r := reader{objects.NewDecodedReader(cached)}
	schemas := newSchemaCache()
	code := &Code{contents: contents, cache: newCodeCache(compile)}
	prompts := &Prompts{reader: r, contents: contents, schemas: schemas}
	pools := &Pools{reader: r}
	return &Resolver{
		Models:    &Models{reader: r, contents: contents, factory: models},
		Prompts:   prompts,
		Tools:     &Tools{reader: r, contents: contents, code: code, schemas: schemas},
		Code:      code,
		Endpoints: &Endpoints{reader: r, code: code},
		Gateways:  &Gateways{reader: r, contents: contents, code: code, pools: pools},
		Webhooks:  &Webhooks{reader: r, contents: contents},
		Pools:     pools,
		Variables: &Variables{reader: r, contents: contents, prompts: prompts},
		reader:    r,
		schemas:   schemas,
	}
}

// RegisterSecrets makes the port register every credential that it reads with s, so that s can redact it. Call it before
// the port is used.
func (d *Resolver) RegisterSecrets(s thread.EnvSecrets) {
	d.Models.secrets, d.Tools.secrets, d.Gateways.secrets, d.Webhooks.secrets = s, s, s, s
}

// Agent implements ports.Definitions.
func (d *Resolver) Agent(ctx context.Context, namespace, name string) (*definition.Agent, error) {
	var a skeinv1.Agent
	if err := d.reader.get(ctx, "Agent", namespace, name, "the agentRef of the thread", &a); err != nil {
		return nil, err
	}
	if err := d.Pools.Check(ctx, &a); err != nil {
		return nil, objects.Within("Agent", name, err)
	}
	out := &definition.Agent{Namespace: namespace, Name: name, Spec: a.Spec}
	var err error
	if out.A, err = d.resolveSide(ctx, &a, "a", "spec.sideA", &a.Spec.SideA); err != nil {
		return nil, objects.Within("Agent", name, err)
	}
	if a.Spec.SideB != nil {
		if out.B, err = d.resolveSide(ctx, &a, "b", "spec.sideB", a.Spec.SideB); err != nil {
			return nil, objects.Within("Agent", name, err)
		}
	}
	if err := d.resolveModelsAfterRun(ctx, &a, out); err != nil {
		return nil, objects.Within("Agent", name, err)
	}
	return out, d.resolveCalled(ctx, &a, out)
}

// resolveSide resolves one side of an agent. field is the agent's field that holds the side.
func (d *Resolver) resolveSide(ctx context.Context, a *skeinv1.Agent, name, field string, spec *skeinv1.AgentSide) (*definition.Side, error) {
	if spec.Handler != nil {
		return d.resolveHandler(ctx, a, name, field, spec)
	}
	namespace := a.Namespace
	var p skeinv1.Prompt
	if err := d.reader.get(ctx, "Prompt", namespace, spec.PromptRef.Name, field+".promptRef", &p); err != nil {
		return nil, err
	}
	resolvedPrompt, err := d.Prompts.Resolve(ctx, &p)
	if err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	out := &definition.Side{Name: name, Spec: *spec, Prompt: *resolvedPrompt}
	if out.Hooks, err = d.Code.resolveHooks(ctx, a, &p); err != nil {
		return nil, err
	}
	if err := CheckToolNames(&p.Spec); err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	var m skeinv1.Model
	if err := d.reader.get(ctx, "Model", namespace, p.Spec.ModelRef.Name, "spec.modelRef", &m); err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	if err := CheckWrites("spec.modelRef", m.Name, &m.Spec); err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	resolved, err := d.Models.Resolve(ctx, &m)
	if err != nil {
		return nil, objects.Within("Model", m.Name, err)
	}
	out.Model = *resolved
	if out.Compactor, out.CompactorErr, err = d.resolveCompactor(ctx, &p); err != nil {
		return nil, err
	}
	servers := map[string]*skeinv1.MCPServer{}
	for i, ref := range p.Spec.Tools {
		if ref.Agent != "" {
			a, err := d.CheckCalledAgent(ctx, namespace, ref.Agent, fmt.Sprintf("spec.tools[%d].agent", i))
			if err != nil {
				return nil, objects.Within("Prompt", p.Name, err)
			}
			called, err := d.calledAgent(ctx, a, ref)
			if err != nil {
				return nil, err
			}
			out.Agents = append(out.Agents, *called)
		}
		if ref.Name == "" {
			continue
		}
		var t skeinv1.Tool
		if err := d.reader.get(ctx, "Tool", namespace, ref.Name, "spec.tools", &t); err != nil {
			return nil, objects.Within("Prompt", p.Name, err)
		}
		tool, err := d.Tools.Resolve(ctx, &t)
		if err != nil {
			return nil, objects.Within("Tool", t.Name, err)
		}
		out.Tools = append(out.Tools, *tool)
		if t.Spec.MCP != nil {
			servers[t.Name] = t.Spec.MCP
		}
	}
	if err := CheckServerNames(p.Spec.Tools, servers); err != nil {
		return nil, objects.Within("Prompt", p.Name, err)
	}
	return out, nil
}

// RuntimeContext implements ports.Definitions. It returns nil for a pool that does not exist: acquiring a sandbox
// reports that where one is needed.
func (d *Resolver) RuntimeContext(ctx context.Context, namespace, pool string) (map[string]any, error) {
	var p skeinv1.SandboxPool
	err := d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool}, &p, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && p.Spec.RuntimeContext == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read SandboxPool %q: %w", pool, err)
	}
	var out map[string]any
	if err := json.Unmarshal(p.Spec.RuntimeContext.Raw, &out); err != nil {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "SandboxPool %q: spec.runtimeContext is not a JSON object: %v", pool, err)
	}
	return out, nil
}

// Names implements ports.Definitions.
func (d *Resolver) Names(ctx context.Context, namespace, kind string) ([]string, error) {
	list, err := listOf(kind)
	if err != nil {
		return nil, err
	}
	if err := d.reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	names := []string{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Load implements ports.Definitions: it returns the name and the spec of a definition. It also omits where secrets
// are stored, because code does not need that.
func (d *Resolver) Load(ctx context.Context, namespace, kind, name string) (json.RawMessage, error) {
	var obj client.Object
	var spec func() any
	switch kind {
	case "agent":
		a := &skeinv1.Agent{}
		obj, spec = a, func() any {
			s := a.Spec
			s.Env = shownEnv(s.Env)
			return s
		}
	case "prompt":
		p := &skeinv1.Prompt{}
		obj, spec = p, func() any {
			s := p.Spec
			s.Env = shownEnv(s.Env)
			return s
		}
	case "model":
		m := &skeinv1.Model{}
		obj, spec = m, func() any {
			s := m.Spec
			s.Credentials = nil
			return s
		}
	default:
		return nil, unknownKind(kind)
	}
	if err := d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &definition.UnknownError{Message: fmt.Sprintf("%s %q does not exist in namespace %q", kind, name, namespace)}
		}
		return nil, fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	data, err := json.Marshal(spec())
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", kind, name, err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", kind, name, err)
	}
	if fields["name"], err = json.Marshal(name); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// shownEnv returns the variables without the values of secrets and without the references to them.
func shownEnv(list []skeinv1.EnvVar) []skeinv1.EnvVar {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Type != skeinv1.EnvText {
			out[i].Value, out[i].ValueFrom = nil, nil
		}
	}
	return out
}

func listOf(kind string) (client.ObjectList, error) {
	switch kind {
	case "agent":
		return &skeinv1.AgentList{}, nil
	case "prompt":
		return &skeinv1.PromptList{}, nil
	case "model":
		return &skeinv1.ModelList{}, nil
	}
	return nil, unknownKind(kind)
}

func unknownKind(kind string) error {
	return errors.New("unknown kind of definition " + kind + `: ask for "agent", "prompt" or "model"`)
}
