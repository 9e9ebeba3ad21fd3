package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/tool"
)

// CheckCalledAgent returns the agent that a prompt lists as a tool, or an error when it does not exist or is not
// exposed as a tool. It does not check whether the agent is ready, because two agents that name each other would wait
// for each other forever. The call itself reports that.
func (d *Resolver) CheckCalledAgent(ctx context.Context, namespace, name, field string) (*skeinv1.Agent, error) {
	var a skeinv1.Agent
	if err := d.reader.get(ctx, "Agent", namespace, name, field, &a); err != nil {
		return nil, err
	}
	if !a.Spec.ExposeAsTool {
		return nil, objects.NotReady(skeinv1.ReasonNotExposed,
			"Agent %q is not exposed as a tool: set its spec.exposeAsTool and spec.toolDescription, or correct %s", name, field)
	}
	return &a, nil
}

// calledAgent describes an agent as a tool, which a prompt lists as ref.
func (d *Resolver) calledAgent(ctx context.Context, a *skeinv1.Agent, ref skeinv1.PromptTool) (*definition.CalledAgent, error) {
	out := &definition.CalledAgent{
		ObjectName: a.Name, Name: tool.Name(a.Name), Description: a.Spec.ToolDescription,
		Ask:              ref.Mode == skeinv1.AgentToolAsk || a.Spec.Type != "" && a.Spec.Type != skeinv1.AgentAIHuman,
		TTLAfterFinished: ref.TTLAfterFinished, Retain: ref.Retain,
	}
	var schemas []json.RawMessage
	for _, name := range objects.PromptsOf(&a.Spec) {
		var p skeinv1.Prompt
		err := d.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, &p, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read Prompt %q: %w", name, err)
		}
		if s := p.Spec.RequiredSchema; s != nil {
			schemas = append(schemas, s.Raw)
		}
	}
	var err error
	switch len(schemas) {
	case 0:
	case 1:
		out.Arguments = schemas[0]
	default: // the schemas of both sides
		out.Arguments, err = json.Marshal(map[string]any{"type": "object", "allOf": schemas})
	}
	return out, err
}

// CalledAgent implements ports.Definitions.
func (d *Resolver) CalledAgent(ctx context.Context, namespace, toolName string) (*definition.CalledAgent, error) {
	var list skeinv1.AgentList
	if err := d.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Agents: %w", err)
	}
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.ExposeAsTool && tool.Name(a.Name) == toolName {
			return d.calledAgent(ctx, a, skeinv1.PromptTool{})
		}
	}
	return nil, nil
}

// HandoffPolicy implements ports.Definitions.
func (d *Resolver) HandoffPolicy(ctx context.Context, namespace, thread string) (skeinv1.HandoffPolicy, error) {
	var t skeinv1.Thread
	err := d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: thread}, &t, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Thread %q: %w", thread, err)
	}
	return t.Spec.HandoffPolicy, nil
}

// CheckCalledPrompt returns an error when a prompt that another one lists as a tool does not exist or is not exposed
// as a tool.
func (d *Resolver) CheckCalledPrompt(ctx context.Context, namespace, name, field string) error {
	var p skeinv1.Prompt
	if err := d.reader.get(ctx, "Prompt", namespace, name, field, &p); err != nil {
		return err
	}
	if !p.Spec.ExposeAsTool {
		return objects.NotReady(skeinv1.ReasonNotExposed,
			"Prompt %q is not exposed as a tool: set its spec.exposeAsTool and spec.toolDescription, or correct %s", name, field)
	}
	return nil
}

// resolveCalled resolves the prompts that an agent's prompts call as tools, and the prompts that those call in turn.
// An error of such a prompt is reported when it is called, because two prompts that name each other would otherwise
// wait for each other forever.
func (d *Resolver) resolveCalled(ctx context.Context, a *skeinv1.Agent, out *definition.Agent) error {
	var next []skeinv1.PromptTool
	for _, side := range []*definition.Side{out.A, out.B} {
		if side != nil {
			next = append(next, side.Prompt.Spec.Tools...)
		}
	}
	for ; len(next) > 0; next = next[1:] {
		name := next[0].Prompt
		if name == "" || out.Prompts[name] != nil {
			continue
		}
		called := &definition.CalledPrompt{}
		err := d.CheckCalledPrompt(ctx, a.Namespace, name, "spec.tools")
		if err == nil {
			called.Side, err = d.resolveSide(ctx, a, out.A.Name, "spec.tools", &skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: name}})
		}
		var unready *definition.NotReadyError
		switch {
		case errors.As(err, &unready):
			called.Err = err
		case err != nil:
			return err
		default:
			next = append(next, called.Side.Prompt.Spec.Tools...)
		}
		if out.Prompts == nil {
			out.Prompts = map[string]*definition.CalledPrompt{}
		}
		out.Prompts[name] = called
	}
	return nil
}
